// Package usage has the help texts of programs whose manual or completion script another program writes.
// Those of corral-front's commands are beside the commands.
//
// The texts are the table of commands and options: package commandline reads them.
package usage

// Corral is the help text of corral.
const Corral = `corral runs other people's programs on your machine without trusting them.

Usage:
  corral run [OPTIONS] -- PROGRAM [ARG]...   run a program in a jail of its own
  corral session open|exec|list|close        jails that stay open, with a layer of their own
  corral agent NAME [ARG]                    run a coding agent in a jail: claude, codex, or any other
  corral shell TEXT                          run the commands of an agent in jails, as its shell
  corral ps                                  list running jobs and open sessions
  corral kill JOB                            end a running job
  corral top                                 watch, follow and end jobs on a terminal
  corral logs [-f] JOB                       show the output of a running job
  corral drain [--timeout TIME | --undo]     take no new jobs, and wait for those that run
  corral reload                              make the supervisor read its configuration again
  corral mcp [--repo DIR]                    serve an agent host, over standard input and output
  corral serve [--listen ADDRESS]            serve agent hosts, over HTTP
  corral exec-server [--repo DIR]            serve clients of command/exec, over JSON-RPC
  corral codex-environment [--repo DIR]      be an execution environment of Codex
  corral changes show|diff|apply|discard     what jobs of a session changed behind an overlay
  corral output [HANDLE]                     the output of earlier jobs of agents
  corral index stats|purge|rebuild           the full-text index of that output
  corral audit tail|show|verify|export       the audit log: what was run for whom
  corral cache list|prune                    what is kept of registries of packages
  corral policy test REQUEST.json            how a request would be decided, and why
  corral repo add|list|remove                the repositories that are served
  corral config check|show|init|token        the configuration
  corral network list|test|allow|deny|log    the hosts that jobs may reach, and those they reached
  corral rootfs import|list|remove           root file systems for sessions
  corral token create|rotate|revoke|list     tokens of clients of corral serve
  corral ci gitlab ...                       run the jobs of GitLab pipelines in jails
  corral doctor                              check what this host can enforce
  corral version                             print the version
  corral completion bash|zsh|fish            print a script that completes the command line
  corral help COMMAND                        explain a command

sudo corral run starts a supervisor for its one job. Members of group corral use the one that runs as a service.
`

// Ps is the help text of corral ps.
const Ps = `corral ps lists running jobs and open sessions: yours, or all of them for root.

Usage: corral ps [--json] [--supervisor SOCKET]

  --json     print one JSON object for each job, on a line of its own, and no sessions

corral top keeps such a list up to date on a terminal.
CPU is the time used so far and MEMORY the maximum so far. WHAT is what a front-end says about the job: its tool and runtime.
COMMAND is what the job's first process says that it runs, as ps shows it, without secrets of known forms; a job can change it.
A terminal shows what fits into a line, --json up to 2048 bytes.
`

// Corrald is the help text of corrald.
const Corrald = `corrald runs jobs in jails for the programs that connect to its socket.

Usage: corrald [--socket PATH] [--repo DIR]... [--toolchain DIR]... [--config FILE]
               [--state DIR]

  --socket PATH     socket to listen on (default /run/corral/corral.sock); root and group corral may connect
  --repo DIR        serve DIR to everybody who may connect; repeatable. Without it, and without repos in the configuration,
                    each user is served the directories that they own
  --toolchain DIR   show DIR read-only, at its own path, in every jail; repeatable
  --config FILE     the operator's configuration, writable by root only (default /etc/corral/config.yaml if it exists)
  --state DIR       directory of the audit log, of layers and of users' state (default /var/lib/corral)
  --instance NAME   name of this supervisor, unique on the machine: a-z0-9-, at most 32 (default main)
  --version         print the version

It must run as root. SIGTERM ends every job and removes all that the supervisor created on the host. SIGHUP reads the
configuration again, as corral reload does.
`

// Top is the help text of corral top.
const Top = `corral top shows running jobs, open sessions and the requests that were denied last, yours or those of all users for
root, and follows or ends a job.

Usage: corral top [--interval TIME] [--supervisor SOCKET]

  --interval TIME       time between two lists, 200ms to 1m (default 1s)
  --supervisor SOCKET   ask the supervisor on this socket (default: that of the service)

Keys:
  up, down, k, j        choose a job
  enter, f              follow its output; escape or q returns to the list
  x                     end it, after y as confirmation
  s                     sort by age, CPU time or memory
  /                     show what contains a text; escape shows all again
  q, ctrl+c             quit

TREND is the CPU use of the last eight lists. The line above the keys has the command of the chosen job.

It needs a terminal: in a script, use corral ps --json. Root is dropped once it is connected: it follows the output of the jobs
of the user who called sudo, and corral logs that of others.
`

// Kill is the help text of corral kill.
const Kill = `corral kill ends all processes of a running job, and returns when they are gone: one of yours, or any for root.

Usage: corral kill JOB [--supervisor SOCKET]

JOB is the first column of corral ps. The job's client gets the status cancelled.
`

// Drain is the help text of corral drain.
const Drain = `corral drain makes the supervisor refuse new jobs and sessions, and waits until no job runs. Only root may. After that
the service can be stopped or upgraded without ending a job.

Usage: corral drain [--timeout TIME] [--undo] [--supervisor SOCKET]

  --timeout TIME    wait for at most this time, such as 10m; the exit code is 1 if jobs still run (default: no limit)
  --undo            take jobs and sessions again

The supervisor stays drained until --undo or its end, also if this command is interrupted.
`

// Reload is the help text of corral reload.
const Reload = `corral reload makes the supervisor read its configuration again, without ending a job or a session. Only root may.

Usage: corral reload [--supervisor SOCKET]

New values apply to the requests that follow. If a file is faulty, the former configuration still applies, and the error
says what is wrong. Keys that a running supervisor cannot change, and repositories that are not served, are listed.
`
