"""Pallas kernels that a twin's JAX code calls where XLA has no equal, each with a plain JAX equivalent beside it."""
