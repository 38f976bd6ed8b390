#include "cli/command_view.h"

#include <CLI/CLI.hpp>
#include <sstream>

namespace lora_bench {
namespace {

// CLI11 tells the allowed values only inside the type name: "WHEN:{auto,always,never}".
std::vector<std::string> choices_in(const std::string& type_name) {
  std::vector<std::string> choices;
  const std::size_t open = type_name.find('{');
  const std::size_t close = type_name.find('}', open);
  if (open == std::string::npos || close == std::string::npos) {
    return choices;
  }
  std::istringstream list(type_name.substr(open + 1, close - open - 1));
  for (std::string choice; std::getline(list, choice, ',');) {
    choices.push_back(choice);
  }
  return choices;
}

// A description says where its values stand: "(see `list backends`)".
std::string topic_in(const std::string& description) {
  const std::string mark = "(see `list ";
  const std::size_t open = description.find(mark);
  if (open == std::string::npos) {
    return "";
  }
  const std::size_t start = open + mark.size();
  return description.substr(start, description.find('`', start) - start);
}

OptionView view_of(const CLI::Option& option) {
  OptionView view;
  for (const std::string& name : option.get_snames()) {
    view.names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    view.names.push_back("--" + name);
  }
  if (view.names.empty()) {
    view.positional = option.get_name(true);
  }
  if (option.get_items_expected_max() > 0) {
    const std::string type_name = option.get_type_name();
    view.choices = choices_in(type_name);
    view.value = type_name.substr(0, type_name.find_first_of(": {"));
    view.many = option.get_items_expected_max() > 1;
  }
  view.description = option.get_description();
  view.topic = topic_in(view.description);
  view.required = option.get_required();
  return view;
}

}  // namespace

CommandView view_of(const CLI::App& app) {
  CommandView view;
  view.name = app.get_name();
  view.description = app.get_description();
  view.footer = app.get_footer();
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* each) { return !each->get_group().empty(); })) {
    view.options.push_back(view_of(*option));
  }
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    view.commands.push_back(view_of(*command));
  }
  return view;
}

}  // namespace lora_bench
