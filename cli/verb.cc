#include "cli/verb.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/diagnostic.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "cli/open.h"
#include "importers/importer.h"

namespace twinforge {

CLI::App* AddVerb(CLI::App& app, Invocation& invocation, const std::string& name,
                  const std::string& description, const std::string& examples) {
  CLI::App* verb = app.add_subcommand(name, description);
  verb->footer("Examples:\n" + examples);
  verb->add_option("--format", invocation.format, "human or json")->check(CLI::IsMember({"human", "json"}));
  return verb;
}

void ReadDecimals(CLI::App& app) {
  // Else the parser takes a leading 0 for octal, and 0x for hexadecimal.
  const auto decimal = [](std::string& word) -> std::string {
    const size_t sign = word.rfind('-', 0) == 0 ? 1 : 0;
    const std::string digits = word.substr(sign);
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
      return "Value " + word + " is no whole number";
    const size_t first = std::min(digits.find_first_not_of('0'), digits.size() - 1);
    word = word.substr(0, sign) + digits.substr(first);
    return "";
  };
  for (CLI::App* verb : app.get_subcommands({})) {
    for (CLI::Option* option : verb->get_options()) {
      const std::string type = option->get_type_name();
      if (type.rfind("INT", 0) == 0 || type.rfind("UINT", 0) == 0)
        option->transform(CLI::Validator(decimal, ""), "decimal");
    }
  }
}

void RefuseEmptyValues(CLI::App& app) {
  const auto said = [](std::string& word) -> std::string { return word.empty() ? "its value is empty" : ""; };
  for (CLI::App* verb : app.get_subcommands({})) {
    for (CLI::Option* option : verb->get_options()) {
      if (!option->get_lnames().empty() && option->get_expected_max() > 0)
        option->check(CLI::Validator(said, ""), "value");
    }
  }
}

void SetRun(CLI::App* verb, Invocation& invocation, std::function<absl::StatusOr<Outcome>()> run) {
  verb->callback([verb, &invocation, run = std::move(run)] {
    invocation.verb = verb->get_name();
    invocation.run = run;
  });
}

void AddCheckpointFlags(CLI::App* verb, ModelFlags& flags) {
  verb->add_option("MODEL", flags.path, "a checkpoint's folder, or one .safetensors file");
  verb->add_option("--config", flags.config, "config.json, where it does not lie beside the tensors");
}

void AddModelFlags(CLI::App* verb, ModelFlags& flags) {
  AddCheckpointFlags(verb, flags);
  verb->add_option("--from-config", flags.from_config,
                   "a config.json alone: counts, plans and scores without a tensor");
}

absl::StatusOr<Model> OpenFlags(const ModelFlags& flags) {
  if (!flags.from_config.empty()) {
    if (!flags.config.empty())
      return Error(1003, "--config", "does nothing beside --from-config", "leave one of the two out");
    if (!flags.path.empty()) {
      return Error(1003, "--from-config", "names a config alone, and MODEL was given as well",
                   "leave one of the two out");
    }
    return ModelFromConfig(flags.from_config);
  }
  if (flags.path.empty()) {
    return Error(1003, "MODEL", "no model was named",
                 "give a checkpoint's folder; plan, score and inspect take --from-config config.json too");
  }
  return OpenCheckpoint(flags.path, flags.config);
}

void AddRecipeFlags(CLI::App* verb, RecipeFlags& flags, bool required) {
  CLI::Option* recipe = verb->add_option("--recipe", flags.recipe, "a library recipe's name, or a file");
  if (required) recipe->required();
  verb->add_option("--chip", flags.chip, "the chip that the twin is for: v5e, v5p, v6e, tpu7x, ...");
  verb->add_option("--shards", flags.shards, "tensor-parallel devices that the twin is for")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--kernel", flags.kernel, "attention kernel that will serve it: paged")
      ->check(CLI::IsMember({"paged"}));
  verb->add_option("--skip-step", flags.skip, "switch a step off, by transform or position (for bisection)");
}

absl::Status CheckArgument(const std::string& form, const std::string& name, bool wanted,
                           const std::string& argument) {
  if (wanted == !argument.empty()) return absl::OkStatus();
  if (wanted)
    return Error(1003, form, absl::StrCat(name, " is required"), absl::StrCat("`", form, " ", name, "`"));
  return Error(1003, form,
               absl::StrCat("takes no ", name, ", and ", JsonQuoted(argument, 100), " was given"));
}

absl::StatusOr<int64_t> ParseBytes(const std::string& text) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
  int64_t value = 0;
  const std::string unit = absl::AsciiStrToLower(text.substr(digits));
  int shift = -1;
  if (unit.empty() || unit == "b") shift = 0;
  if (unit == "k" || unit == "kib") shift = 10;
  if (unit == "m" || unit == "mib") shift = 20;
  if (unit == "g" || unit == "gib") shift = 30;
  if (unit == "t" || unit == "tib") shift = 40;
  const bool number = absl::SimpleAtoi(text.substr(0, digits), &value) && value > 0;
  if (!number || shift < 0 || value > (std::numeric_limits<int64_t>::max() >> shift)) {
    return Error(1002, absl::StrCat("\"", text, "\""), "is no size",
                 "write 256MiB, 2GiB or a number of bytes");
  }
  return value << shift;
}

}  // namespace twinforge
