#include "cost/calibration_fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"

namespace twinforge {
namespace {

constexpr double kRowsOfPartition = 60;
constexpr double kStep = 0.01;  // of a logarithm, for derivatives

Predicted PredictWith(const FitRow& row, const Constants& constants) {
  if (row.kind == FitRow::Kind::kStep)
    return {.seconds = EstimateStep(row.serving.decode, row.chip, constants)};
  const Steady steady = SteadyState(row.serving, row.chip, constants);
  return {.seconds = steady.tpot, .first_token = steady.ttft};
}

// How far a scope's factors may move a constant, as the logarithm's standard deviation.
struct ScopeKind {
  double width;
  bool stack, generation, format;
};
constexpr ScopeKind kScopes[] = {{0.3, true, false, false},
                                 {0.1, false, true, false},
                                 {0.1, false, false, true},
                                 {0.12, true, true, true}};

// A linear system that is symmetric and positive definite, by Cholesky's method, in place.
std::vector<double> Solve(std::vector<double> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t j = 0; j < n; ++j) {
    double d = a[j * n + j];
    for (size_t k = 0; k < j; ++k) d -= a[j * n + k] * a[j * n + k];
    TWIN_CHECK(d > 0, "priors keep the system positive definite");
    const double root = std::sqrt(d);
    a[j * n + j] = root;
    for (size_t i = j + 1; i < n; ++i) {
      double sum = a[i * n + j];
      for (size_t k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = sum / root;
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i * n + k] * b[k];
    b[i] /= a[i * n + i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k * n + i] * b[k];
    b[i] /= a[i * n + i];
  }
  return b;
}

// The parameters of a fit and where each row finds its own.
class Problem {
 public:
  // `held`: has the constants that are not free.
  Problem(const Calibration& priors, const Calibration& held, absl::Span<const FitRow> rows,
          std::vector<Constant> free, bool first_token)
      : rows_(rows), held_(held), free_(std::move(free)), first_token_(first_token) {
    for (const Calibration::Base& base : priors.base()) AddBase(base);
    std::map<std::string, int> counts;
    for (const FitRow& row : rows_) ++counts[row.partition];
    for (const FitRow& row : rows_) {
      weights_.push_back(std::min(1.0, kRowsOfPartition / counts[row.partition]));
      AddRow(row);
    }
    theta_.assign(prior_width_.size(), 0);
  }

  void Run();
  void Write(const Calibration& priors, Calibration& into) const;

 private:
  // A base or a scope's factor of one constant.
  struct Parameter {
    Constant constant;
    int base = -1;  // index of the prior's base
    int scope = -1;
  };

  void AddBase(const Calibration::Base& base) {
    const Constant constant = *ConstantFromName(base.constant());
    bases_.push_back({base.family(), constant, std::log(base.value())});
    base_parameter_.push_back(-1);
    if (std::find(free_.begin(), free_.end(), constant) == free_.end()) return;
    base_parameter_.back() = static_cast<int>(parameters_.size());
    parameters_.push_back({.constant = constant, .base = static_cast<int>(bases_.size()) - 1});
    prior_width_.push_back(base.spread());
  }

  int ScopeOf(const FitRow& row, const ScopeKind& kind) {
    const auto key = std::make_tuple(row.family, kind.stack ? row.stack : "",
                                     kind.generation ? row.generation : "", kind.format ? row.format : "");
    const auto [it, fresh] = scopes_.try_emplace(key, static_cast<int>(scope_rows_.size()));
    if (fresh) {
      scope_rows_.push_back(0);
      scope_parameters_.emplace_back();
      for (const Constant constant : free_) {
        scope_parameters_.back().push_back(static_cast<int>(parameters_.size()));
        parameters_.push_back({.constant = constant, .scope = it->second});
        // Seconds and shares differ more between engines than rates do.
        prior_width_.push_back(kind.width * (Info(constant).unit == "x" ? 1 : 2));
      }
    }
    ++scope_rows_[it->second];
    return it->second;
  }

  void AddRow(const FitRow& row) {
    std::vector<std::vector<int>> own(kConstants);
    const Constants held = ComposedConstants(held_, row.family, row.stack, row.generation, row.format).mid;
    std::array<double, kConstants>& logs = row_bases_.emplace_back();
    for (int c = 0; c < kConstants; ++c) logs[c] = std::log(held[c]);
    for (size_t i = 0; i < bases_.size(); ++i) {
      const auto& [family, constant, value] = bases_[i];
      if (!family.empty() && family != row.family) continue;
      if (base_parameter_[i] < 0) continue;
      logs[static_cast<size_t>(constant)] = value;
      own[static_cast<size_t>(constant)].push_back(base_parameter_[i]);
    }
    for (const ScopeKind& kind : kScopes) {
      const int scope = ScopeOf(row, kind);
      for (size_t f = 0; f < free_.size(); ++f)
        own[static_cast<size_t>(free_[f])].push_back(scope_parameters_[scope][f]);
    }
    row_parameters_.push_back(std::move(own));
  }

  Constants ConstantsOf(size_t row, const std::vector<double>& theta) const {
    Constants constants;
    for (int c = 0; c < kConstants; ++c) {
      double log = row_bases_[row][c];
      for (const int parameter : row_parameters_[row][c]) log += theta[parameter];
      constants[c] = std::exp(log);
      if (AllConstants()[c].unit == "share") constants[c] = std::min(constants[c], 1.0);
    }
    return constants;
  }

  double Residual(size_t row, const Constants& constants) const {
    const Predicted predicted = PredictWith(rows_[row], constants);
    return first_token_ ? std::log(predicted.first_token / rows_[row].first_token)
                        : std::log(predicted.seconds / rows_[row].seconds);
  }

  double Huber() const { return first_token_ ? 0.3 : 0.05; }

  double Loss(const std::vector<double>& theta, std::vector<double>& residuals) const {
    const double knee = Huber();
    double loss = 0;
    residuals.resize(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i) {
      const double r = residuals[i] = Residual(i, ConstantsOf(i, theta));
      const double a = std::abs(r);
      loss += weights_[i] * (a < knee ? a * a / (2 * knee) : a - knee / 2) / knee;
    }
    for (size_t p = 0; p < theta.size(); ++p)
      loss += theta[p] * theta[p] / (2 * prior_width_[p] * prior_width_[p]);
    return loss;
  }

  // Adds a row's part of the normal equations.
  void AddNormal(size_t row, double residual, std::vector<double>& h, std::vector<double>& g) const {
    const size_t n = theta_.size();
    const double knee = Huber();
    const double weight = weights_[row] / std::max(std::abs(residual), knee) / knee;
    const Constants constants = ConstantsOf(row, theta_);
    std::vector<std::pair<int, double>> slopes;
    for (const Constant constant : free_) {
      Constants moved = constants;
      const auto c = static_cast<size_t>(constant);
      moved[c] *= std::exp(-kStep);
      const double slope = (residual - Residual(row, moved)) / kStep;
      if (slope == 0) continue;
      for (const int parameter : row_parameters_[row][c]) slopes.emplace_back(parameter, slope);
    }
    for (const auto& [i, a] : slopes) {
      g[i] += weight * a * residual;
      for (const auto& [j, b] : slopes) h[i * n + j] += weight * a * b;
    }
  }

  absl::Span<const FitRow> rows_;
  const Calibration& held_;
  std::vector<Constant> free_;
  bool first_token_;
  std::vector<std::tuple<std::string, Constant, double>> bases_;
  std::vector<int> base_parameter_;
  std::vector<Parameter> parameters_;
  std::vector<double> prior_width_;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, int> scopes_;
  std::vector<int64_t> scope_rows_;
  std::vector<std::vector<int>> scope_parameters_;
  std::vector<double> weights_;
  std::vector<std::vector<std::vector<int>>> row_parameters_;  // [row][constant]
  std::vector<std::array<double, kConstants>> row_bases_;      // logarithms
  std::vector<double> theta_;
  std::vector<double> width_;  // after the fit
};

void Problem::Run() {
  const size_t n = theta_.size();
  std::vector<double> residuals;
  double loss = Loss(theta_, residuals);
  double damping = 1e-2;
  std::vector<double> h, g;
  for (int iteration = 0; iteration < 60; ++iteration) {
    h.assign(n * n, 0);
    g.assign(n, 0);
    for (size_t i = 0; i < rows_.size(); ++i) AddNormal(i, residuals[i], h, g);
    for (size_t p = 0; p < n; ++p) {
      h[p * n + p] += 1 / (prior_width_[p] * prior_width_[p]);
      g[p] += theta_[p] / (prior_width_[p] * prior_width_[p]);
    }
    bool better = false;
    double gained = 0;
    for (int attempt = 0; attempt < 8 && !better; ++attempt) {
      std::vector<double> damped = h;
      for (size_t p = 0; p < n; ++p) damped[p * n + p] *= 1 + damping;
      std::vector<double> theta = Solve(std::move(damped), g);
      for (size_t p = 0; p < n; ++p) theta[p] = theta_[p] - std::clamp(theta[p], -0.7, 0.7);
      std::vector<double> moved;
      const double next = Loss(theta, moved);
      better = next < loss;
      if (better) {
        gained = loss - next;
        loss = next;
        theta_ = std::move(theta);
        residuals = std::move(moved);
        damping = std::max(damping / 3, 1e-6);
      } else {
        damping *= 4;
      }
    }
    if (!better || gained < 5e-5 * loss) break;
  }
  // How sharply the rows fix each parameter, the others at their values.
  for (size_t p = 0; p < n; ++p) width_.push_back(1 / std::sqrt(h[p * n + p]));
}

// Six digits say all that rows can tell, and make a file that people can read.
double Rounded(double value) {
  const double scale = std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

void Problem::Write(const Calibration& priors, Calibration& into) const {
  for (size_t i = 0; i < bases_.size(); ++i) {
    if (base_parameter_[i] < 0) continue;
    Calibration::Base* base = into.add_base();
    *base = priors.base(static_cast<int>(i));
    base->set_value(Rounded(priors.base(static_cast<int>(i)).value() * std::exp(theta_[base_parameter_[i]])));
    base->set_spread(Rounded(width_[base_parameter_[i]]));
    // What rows narrowed by less than a fifth is still the guess that it was.
    const bool narrowed = width_[base_parameter_[i]] < 0.8 * prior_width_[base_parameter_[i]];
    base->set_provenance(narrowed ? Calibration::FITTED : Calibration::ASSUMED);
  }
  for (const auto& [key, scope] : scopes_) {
    const auto& [family, stack, generation, format] = key;
    Calibration::Scope* row = nullptr;
    for (Calibration::Scope& earlier : *into.mutable_scope()) {
      if (earlier.family() == family && earlier.stack() == stack && earlier.generation() == generation &&
          earlier.format() == format)
        row = &earlier;
    }
    if (row == nullptr) row = into.add_scope();
    row->set_family(family);
    row->set_stack(stack);
    row->set_generation(generation);
    row->set_format(format);
    row->set_rows(std::max(row->rows(), scope_rows_[scope]));
    for (size_t f = 0; f < free_.size(); ++f) {
      const int parameter = scope_parameters_[scope][f];
      if (std::abs(theta_[parameter]) < 1e-4) continue;  // nothing speaks for it
      Calibration::Factor* factor = row->add_factor();
      factor->set_constant(std::string(Info(free_[f]).name));
      factor->set_value(Rounded(std::exp(theta_[parameter])));
      factor->set_spread(Rounded(width_[parameter]));
    }
  }
}

// Work that the measured rate of answers asks of a device each second, at its peaks.
double Demanded(const FitRow& row) {
  const ServingTerms& serving = row.serving;
  const double groups = static_cast<double>(serving.decode.groups);
  const double answers = serving.batch / (row.first_token + serving.output_len * row.seconds);
  const double work = BoundSeconds(serving.prefill) / groups +
                      serving.output_len * BoundSeconds(serving.decode) / serving.batch;
  return answers * work;
}

}  // namespace

std::vector<std::string> Quarantine(absl::Span<const FitRow> rows) {
  std::vector<std::string> reasons(rows.size());
  std::map<std::string, std::vector<size_t>> tables;
  for (size_t i = 0; i < rows.size(); ++i) {
    const FitRow& row = rows[i];
    if (BoundSeconds(row.serving.decode) > row.seconds) {
      reasons[i] = "faster than the bound of a decode step";
    } else if (row.kind == FitRow::Kind::kServe && Demanded(row) > 1) {
      reasons[i] = "its rate of answers needs more than the chip's peak: the load was not steady";
    }
    if (row.kind != FitRow::Kind::kServe) continue;
    tables[row.table].push_back(i);
  }
  for (const auto& [name, of_table] : tables) {
    for (const size_t i : of_table) {
      for (const size_t j : of_table) {
        if (i == j || rows[i].serving.batch > rows[j].serving.batch ||
            rows[i].seconds <= 1.25 * rows[j].seconds)
          continue;
        for (const size_t row : {i, j}) {
          if (reasons[row].empty())
            reasons[row] = "fewer clients were slower than more of them in the same table";
        }
      }
    }
  }
  return reasons;
}

Calibration FitConstants(const Calibration& priors, absl::Span<const FitRow> rows) {
  Calibration fitted = priors;
  fitted.clear_base();
  fitted.clear_scope();
  std::vector<Constant> of_tokens, of_first;
  for (int c = 0; c < kConstants; ++c) {
    const auto constant = static_cast<Constant>(c);
    const bool first = constant == Constant::kFirstQueue || constant == Constant::kFirstPrompt;
    (first ? of_first : of_tokens).push_back(constant);
  }
  Problem tokens(priors, priors, rows, of_tokens, false);
  tokens.Run();
  tokens.Write(priors, fitted);
  // Then the time to the first token, everything else as found.
  std::vector<FitRow> served;
  for (const FitRow& row : rows) {
    if (row.kind == FitRow::Kind::kServe && row.first_token > 0) served.push_back(row);
  }
  const Calibration between = fitted;
  Problem first(priors, between, served, of_first, true);
  first.Run();
  first.Write(priors, fitted);
  return fitted;
}

Predicted Predict(const Calibration& calibration, const FitRow& row) {
  return PredictWith(row,
                     ComposedConstants(calibration, row.family, row.stack, row.generation, row.format).mid);
}

int FoldOf(absl::string_view id) {
  const std::string hash = Sha256Hex(id);
  return (hash[0] * 16 + hash[1]) % 5;
}

}  // namespace twinforge
