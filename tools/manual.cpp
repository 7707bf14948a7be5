// bonsai man and bonsai completion SHELL: print a manual page and completions of all commands and options.
#include <fmt/format.h>

#include "bonsai/tools/command.h"

namespace bonsai {
namespace {

std::vector<CLI::App*> commands_of(CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Escapes text for troff: hyphens, backslashes, and a leading . or ', which would begin a request.
std::string roff(const std::string& text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    if (c == '-' || c == '\\') out += '\\';
    out += c == '\\' ? 'e' : c;
  }
  return out;
}

std::string options_manual(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options())
    text += fmt::format(".TP\n.B {}\n{}\n", roff(option->get_name(option->get_positional(), true)),
                        roff(option->get_description()));
  return text;
}

// `path` has the words before the command's name.
std::string commands_manual(CLI::App& app, const std::string& path) {
  std::string text;
  for (CLI::App* command : commands_of(app)) {
    const std::string name = path + command->get_name();
    text += fmt::format(".SS {}\n{}\n", roff(name), roff(command->get_description()));
    text += options_manual(*command) + commands_manual(*command, name + " ");
  }
  return text;
}

std::string manual(CLI::App& program) {
  const std::string name = "bonsai";
  return fmt::format(".TH BONSAI 1 \"\" \"{0}\"\n.SH NAME\n{1} \\- {2}\n"
                     ".SH SYNOPSIS\n.B {1}\n.I COMMAND\n[\n.I OPTIONS\n]\n"
                     ".SH OPTIONS\n{3}.SH COMMANDS\n{4}.SH EXIT STATUS\n{5}\n",
                     roff(program.version()), name, roff(program.get_description()), options_manual(program),
                     commands_manual(program, ""), roff(program.get_footer()));
}

// Lines of a case statement for bash and zsh, from the words before the cursor to those that may follow.
std::string cases(CLI::App& app, const std::string& path) {
  std::string words, deeper;
  for (CLI::App* command : commands_of(app)) {
    words += command->get_name() + " ";
    deeper += cases(*command, path.empty() ? command->get_name() : path + " " + command->get_name());
  }
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
  words.pop_back();
  const std::string longer = deeper.empty() ? fmt::format(" | \"{} \"*", path) : "";
  return deeper + fmt::format("    \"{}\"{}) list=\"{}\" ;;\n", path, longer, words);
}

std::string completion(CLI::App& program, const std::string& shell) {
  const std::string body = fmt::format("  case \"$before\" in\n{}  esac\n", cases(program, ""));
  if (shell == "bash")
    return "_bonsai() {\n  local list=\"\" before=\"${COMP_WORDS[*]:1:COMP_CWORD-1}\"\n" + body +
           "  COMPREPLY=($(compgen -W \"$list\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n"
           "complete -o default -F _bonsai bonsai\n";
  return "#compdef bonsai\n_bonsai() {\n  local list=\"\" before=\"${(j: :)words[2,CURRENT-1]}\"\n" + body +
         "  compadd -- ${=list}\n  [[ $PREFIX == -* ]] || _files\n}\n_bonsai \"$@\"\n";
}

}  // namespace

void add_man(CLI::App& program) {
  CLI::App* command = program.add_subcommand("man", "print the manual page, for man -l");
  command->callback([&program] { fmt::print("{}", manual(program)); });
}

void add_completion(CLI::App& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand("completion", "print the completions of a shell");
  command->add_option("shell", *shell, "the shell")->required()->check(CLI::IsMember({"bash", "zsh"}));
  command->callback([&program, shell] { fmt::print("{}", completion(program, *shell)); });
}

}  // namespace bonsai
