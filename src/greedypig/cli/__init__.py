"""The command line. `greedypig` and `python -m greedypig` both call `main.main`.

A subcommand is a module of its own in this folder, with a line of help in `main.COMMANDS`. It
defines

- `DESCRIPTION`: what it does, for its own --help;
- `EXAMPLES`: command lines, shown below its options as they are;
- `configure(parser)`: adds its arguments to an `argparse.ArgumentParser`; groups that several
  commands share ("model", "method", "hardware", "output") are in `options`;
- `run(args, terminal) -> int`: does the job and returns the exit code.

`terminal.say` prints a line for people; it is silent under --json or --quiet.
`terminal.result(record)` prints the one object of --json. `terminal.bar` shows progress on a
terminal. A `UsageError` ends with exit code 2, any other error with 1, in one sentence; inside
`failures.wrong_command()` what the library refuses is a `UsageError`. Ctrl-C and
SIGTERM arrive as KeyboardInterrupt. `main` then prints the command that goes on with --resume, or
the one that starts again, with exit code 1. A command that has to save something first saves it and
raises `Stopped`.

Exit codes: 0 everything was done, 1 something failed or was stopped, 2 the command was wrong. An
input file that does not exist is a wrong command.
"""
