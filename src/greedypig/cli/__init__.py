"""The command line. `greedypig` and `python -m greedypig` both call `main.main`.

A subcommand is an entry of `commands.COMMANDS`: its help, its options and examples. What several
commands share is in `options`, and so are the names of the options that --help leaves to
--help-all. Neither imports torch. The subcommand's own module in this folder defines
`run(args, terminal) -> int`, which does the job and returns the exit code.

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
