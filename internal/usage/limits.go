package usage

// Limits are the lines of the options for limits, in the help texts of all commands that have them. They are generated from package job: go
// test ./internal/usage -run TestLimits -update.
const Limits = `  --memory SIZE         memory of all processes, with page cache; there is no swap (default 2GiB)
  --cpus N              CPUs of the host (default no limit)
  --pids N              processes and threads (default 512)
  --timeout TIME        time from start to end (default no limit)
  --kill-after TIME     time from SIGTERM to SIGKILL when a job is ended, at its timeout or on request (default 2s)
  --tmp SIZE            size of each private directory: /tmp, /var/tmp, /home, /dev/shm. It is memory (default no limit)
  --disk SIZE           space that a job may add to the repository (default no limit)
  --inodes N            files that a job may add to the repository (default no limit)
  --file-size SIZE      size of one file (default no limit)
  --nofile N            open files of one process (default 4096)
`
