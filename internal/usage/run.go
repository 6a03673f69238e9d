package usage

// Run is the help text of corral run.
const Run = `corral run runs a program in a jail: it sees the repository, the system's programs, and nothing else of the host.

Usage: corral run [OPTIONS] [--] PROGRAM [ARG]...

  --repo DIR            the repository; it is the working directory (default the current directory)
  --cwd DIR             working directory in the repository, relative to it or absolute
  --workspace MODE      direct: the job writes to the repository (default); readonly: it cannot write to it;
                        overlay: it writes to a copy; the changes are kept for corral changes, and standard error names
                        them; none: the job sees no repository, and works in /tmp
  --protect WHAT        make sensitive paths read-only: hooks, or all, which adds whole git directories (default none)
  --profile NAME        system call profile: default, or strict (no ptrace, and fewer other calls)
  --network HOST,...    reach no more of the hosts that the operator allows than these: a preset such as npm, HOST,
                        *.HOST or HOST:PORT; none: no host; repeatable (default all of them). With a supervisor of
                        root's own, as with sudo, these are allowed in place of what the operator allows
  --session ID          run in this session, with its repository and workspace; see corral session
  --background          of a session: return when it runs and print its id; see corral session

` + Limits + `
  --env NAME=VALUE      set a variable; repeatable. Your environment is not passed
  --env-pass NAME       pass a variable of your environment; repeatable
  --stdin               pass standard input (default: only if it is a pipe or a file; otherwise it is empty)
  --no-stdin            make standard input empty
  --tty                 give the job a terminal of its own, joined to yours
  --output-limit SIZE   drop the rest of each output stream (default no limit; with --json 10MiB)
  --json                print one JSON object instead: status, exitCode, stdout, stderr, usage, ...

  --supervisor SOCKET   use this supervisor (default /run/corral/corral.sock; root starts one for the job)
  --toolchain DIR       show DIR read-only in the jail; root only, repeatable
  --account USER        for root without sudo: open the directories with this user's rights (default root's; with sudo,
                        always the rights of the user who called it)

Exit code: the job's; 128+n if signal n ended it; 124 at the timeout; 126 or 127 if PROGRAM cannot be executed or does
not exist; 125 if corral itself failed. Standard error says why a job ended early, which sensitive paths it changed, and
which hosts it was denied.
`

// Session is the help text of corral session.
const Session = `corral session keeps a jail open for several jobs. They share the home directory and /tmp; with --workspace overlay
also a writable layer over the repository, and with --root a whole root file system. All of these are on the session's
layer, which has a fixed size. (/tmp is private to each job if the repository or a toolchain is in it.)

Usage:
  corral session open [--repo DIR] [OPTIONS]   open a session, and print its id
  corral session exec ID [OPTIONS] -- PROGRAM [ARG]...
                                               run a program in it, as corral run --session ID does
  corral session exec --background ID [OPTIONS] -- PROGRAM [ARG]...
                                               start a program that runs on, and print its job's id
  corral session list [--json]                 list open sessions, and the kept changes of closed ones
  corral session forward ID PORT[:HOSTPORT]... let programs of this host connect to servers that its jobs run
  corral session close ID... [--discard]       end a session, and every job in it

  --repo DIR            the repository (default the current directory)
  --workspace MODE      direct: jobs write to the repository (default); readonly: they cannot write to it;
                        overlay: they write to the layer, and corral changes shows and applies the changes
  --root                a root file system of its own that jobs may write to
  --image NAME          start from this root file system, see corral rootfs (default the host's system directories)
  --name NAME           a name that commands accept in place of the id; unique among your open sessions
  --profile NAME        system call profile: default, or strict
  --network HOST,...    what its jobs may reach, as in corral run (default all that the operator allows)
  --disk SIZE           size of the layer (default the supervisor's)
  --idle 30m            end the session when it has run no job for this long (default the supervisor's)
  --discard             do not keep changes behind an overlay
  --supervisor SOCKET   use this supervisor (default /run/corral/corral.sock)

A session outlives the command that opened it, so it needs a supervisor that runs as a service. Changes behind an
overlay are kept when the session ends; close then prints the id for corral changes.

A program in the background runs until it ends, corral kill JOB ends it, or its session ends: a session with such a job is not
idle. exec says on standard error where the session's jobs listen, if that is within a second. corral logs JOB shows what it writes,
corral output what it wrote. If it ends within that second, the exit code is its own.

forward listens at 127.0.0.1 and ::1 of this host, at HOSTPORT (default PORT or, if that is in use, a port that is free; 0 is
any that is free), prints the address and connects to PORT of the session until Ctrl-C or until the session ends. Every user
of this host can connect to it.

Examples:
  id=$(corral session open --repo ~/src/app --workspace overlay)
  corral session exec $id -- make
  corral session close $id
  corral changes diff $id
  corral session exec --background $id -- npm run dev
  corral session forward $id 5173
`
