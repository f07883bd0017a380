"""A roofline of one decode step in plain Python, node by node: what `validate_cost` measures its own speed beside.

    python3 bench/peer_roofline.py LAYERS REPEATS     prints microseconds of one step

The arithmetic of R0 to R3 alone: for each node useful work, tiles, bytes, and the larger of their times. No
graph is read, no type is checked, nothing is refused, so that the peer is given every advantage.
"""
import sys
import time


def step(layers, batch=16, context=2048, d=4096, heads=32, kv=8, hd=128, ff=14336, vocab=128256, peak=918e12, best=3680e12, bandwidth=1638e9, edge=256, units=2):
    ladder = [0.0] * 4

    def add(products, read):
        flops = sum(2 * m * k * n * c for m, k, n, c in products)
        tiles = sum(2 * c * edge * edge * min(-(-k // edge) * -(-n // edge) * -(-m // 8) * 8, -(-k // edge) * -(-m // edge) * -(-n // 8) * 8) for m, k, n, c in products)
        times = [flops / best, flops / peak, tiles / peak, read / bandwidth]
        last = 0.0
        for rung, seconds in enumerate(times):
            last = max(last, seconds)
            ladder[rung] += last

    for _ in range(layers):
        add([], 2 * d)
        attention = [(batch, d, heads * hd, 1), (batch, d, kv * hd, 2), (batch, heads * hd, d, 1), (heads // kv, hd, context + 1, batch * kv), (heads // kv, context + 1, hd, batch * kv)]
        add(attention, 2 * (2 * d * heads * hd + 2 * d * kv * hd) + batch * (context + 1) * 2 * kv * hd * 2)
        add([], 0)
        add([], 2 * d)
        add([(batch, d, ff, 2), (batch, ff, d, 1)], 2 * 3 * d * ff)
        add([], 0)
    add([(batch, d, vocab, 1)], 2 * d * vocab)
    return ladder


if __name__ == "__main__":
    layers, repeats = int(sys.argv[1]), int(sys.argv[2])
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        step(layers)
        times.append(time.process_time() - begin)
    print(f"{sorted(times)[len(times) // 2] * 1e6:.1f}")
