"""The command line. `greedypig` and `python -m greedypig` both call `main.main`.

A subcommand is a module of its own in this folder, with a line of help in `main.COMMANDS`. It
defines

- `DESCRIPTION`: what it does; --help shows the first paragraph, --help-all the others too;
- `EXAMPLES`: command lines, shown below its options as they are;
- `configure(parser)`: adds its arguments to an `argparse.ArgumentParser`, in the groups "input",
  "model", "method" and "output"; what several commands share is in `options`, and so are the
  names of the options that --help leaves to --help-all;
- `run(args, terminal) -> int`: does the job and returns the exit code.

`terminal.say` prints a line for people; it is silent under --json or --quiet.
`terminal.result(record)` prints an object of --json: one per input, with the key "error" if it
failed. `terminal.bar` shows progress on a terminal.
A `UsageError` ends with exit code 2, any other error with 1, in one sentence; inside
`failures.wrong_command()` what the library refuses is a `UsageError`. Ctrl-C and
SIGTERM arrive as KeyboardInterrupt. `main` then prints the command that goes on with --resume, or
the one that starts again, with exit code 1. A command that has to save something first saves it and
raises `Stopped`.

Exit codes: 0 everything was done, 1 something failed or was stopped, 2 the command was wrong. An
input file that does not exist is a wrong command.
"""
