package ci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"corral/internal/pipe"
	"corral/job"
)

// abandonedAfter is the age at which the directory of a job without a session is removed. Between its directory and its
// session, a job that is being prepared has none.
const abandonedAfter = time.Hour

// makeJob makes the directory of a job, and those above it. Only the user may enter them: the sources of private projects
// are in them.
func makeJob(root, name string) error {
	jobs := filepath.Join(root, "jobs")
	if err := os.MkdirAll(jobs, 0o700); err != nil {
		return err
	}
	dir := filepath.Join(jobs, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for _, sub := range []string{"builds", "cache"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// openJob opens the directory of a job. What jobs put into it leads to nothing outside.
func openJob(root, name string) (*os.Root, error) {
	jobs, err := os.OpenRoot(filepath.Join(root, "jobs"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = jobs.Close() }()
	if err := jobs.Chmod(name, 0o700); err != nil { // an earlier stage can have taken the permissions away
		return nil, err
	}
	return jobs.OpenRoot(name)
}

// write writes a new file.
func write(dir *os.Root, name string, content []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// remove removes a file that this process made. A job may have removed or replaced it.
func remove(dir *os.Root, name string) { _ = dir.RemoveAll(name) }

// removeJob removes the directory of a job that has no session any more. What a job has made so that this process cannot
// remove it (directories without permissions, or nested too deep) is removed by a job in it.
func (g *gitlab) removeJob(name string) error {
	jobs, err := os.OpenRoot(filepath.Join(g.root, "jobs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = jobs.Close() }()
	if err = jobs.RemoveAll(name); err == nil {
		return nil
	}
	// Nobody can enter the directory, not even that job, if a stage took its own permissions away.
	if err := jobs.Chmod(name, 0o700); err != nil {
		return err
	}
	if tried := g.empty(filepath.Join(g.root, "jobs", name)); tried != nil {
		return errors.Join(err, tried)
	}
	return jobs.RemoveAll(name)
}

// emptyTimeout bounds the removal of a job's files by a job.
const emptyTimeout = 5 * time.Minute

// empty removes everything in the directory, by a job.
func (g *gitlab) empty(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), emptyTimeout)
	defer cancel()
	var stdio job.Stdio
	for _, to := range []**os.File{&stdio.Stdout, &stdio.Stderr} {
		read, write, err := pipe.New(pipe.Reads)
		if err != nil {
			return err
		}
		defer read.Close() // what rm says is of no use to anybody: the directory is tried again
		*to = write
	}
	r, err := g.client.Run(ctx, job.Spec{
		Repo: dir, Args: []string{"sh", "-c", "chmod -R u+rwx . 2>&-; exec find . -mindepth 1 -delete 2>&-"}, Env: environment,
	}, stdio)
	if err == nil && r.Status != job.Success {
		err = errors.New("a job that removes the files of the job failed")
	}
	return err
}

// sweep removes the directories of jobs that have no session any more: their runner was killed, or the machine restarted.
func (g *gitlab) sweep(open []job.Session) {
	entries, err := os.ReadDir(filepath.Join(g.root, "jobs"))
	if err != nil {
		return
	}
	for _, e := range entries {
		name := e.Name()
		info, err := e.Info()
		if err != nil || !e.IsDir() || !jobName().MatchString(name) || time.Since(info.ModTime()) < abandonedAfter {
			continue
		}
		if !slices.ContainsFunc(open, func(s job.Session) bool { return s.Name == name && !s.Kept }) {
			_ = g.removeJob(name) // the next job tries again
		}
	}
}
