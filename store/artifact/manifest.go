package artifact

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/store/artifact/spool"
)

const manifestName = "manifest.json"

func fileOf(stream string) string { return stream + ".gz" }

// fileNames are the files of an artifact.
var fileNames = [3]string{fileOf(Stdout), fileOf(Stderr), manifestName}

const (
	manifestVersion = 1
	maxManifest     = 256 << 10
	// maxStream is the maximum number of bytes of a stream that are ever read back.
	maxStream = 1 << 30
)

// A Manifest describes an artifact. Sizes, lines and hashes of a stream are those of the stored stream; totals are of
// what the job wrote.
type Manifest struct {
	Version         int        `json:"version"`
	ArtifactID      string     `json:"artifactId"`
	RepoID          string     `json:"repoId"`
	Runtime         string     `json:"runtime"`
	Principal       string     `json:"principal"`
	Status          string     `json:"status"`
	ArgsHash        string     `json:"argsHash"`
	CodeSHA256      *string    `json:"codeSha256"` // null without code
	RelativeCwd     string     `json:"relativeCwd"`
	ExitCode        *int       `json:"exitCode"` // null after a signal or at the deadline
	Signal          *string    `json:"signal"`   // such as SIGTERM
	DurationMs      int64      `json:"durationMs"`
	StdoutBytes     int64      `json:"stdoutBytes"`
	StderrBytes     int64      `json:"stderrBytes"`
	StdoutSHA256    string     `json:"stdoutSha256"`
	StderrSHA256    string     `json:"stderrSha256"`
	StdoutLines     int64      `json:"stdoutLines"` // including lines left out
	StderrLines     int64      `json:"stderrLines"`
	StdoutGap       *spool.Gap `json:"stdoutLeftOut,omitempty"`
	StderrGap       *spool.Gap `json:"stderrLeftOut,omitempty"`
	TotalStdout     int64      `json:"totalStdoutBytes"`
	TotalStderr     int64      `json:"totalStderrBytes"`
	PolicyAuditHash string     `json:"policyAuditHash"`
	CreatedAt       time.Time  `json:"createdAt"`
	ExpiresAt       time.Time  `json:"expiresAt"`
}

// A storedStream is a manifest's description of one stream.
type storedStream struct {
	name         string
	bytes, total int64
	lines        int64
	sha          string
	gap          *spool.Gap
	owner        []byte // the mark that its header must have, if it has one
}

func (m *Manifest) stream(name string) storedStream {
	owner := ownerOf(m.ArtifactID, m.Principal)
	if name == Stderr {
		return storedStream{name, m.StderrBytes, m.TotalStderr, m.StderrLines, m.StderrSHA256, m.StderrGap, owner}
	}
	return storedStream{name, m.StdoutBytes, m.TotalStdout, m.StdoutLines, m.StdoutSHA256, m.StdoutGap, owner}
}

// newManifest describes the outcome of a job; the caller fills in the streams.
func newManifest(handle string, b *BeginOptions, r *job.Record, now time.Time, ttl time.Duration) *Manifest {
	m := &Manifest{
		Version: manifestVersion, ArtifactID: handle, RepoID: b.Repo, Runtime: b.Runtime, Principal: b.Principal,
		Status: string(r.Status), ArgsHash: r.Decision.Args, RelativeCwd: ".",
		DurationMs: max(r.Duration, time.Since(r.Created)).Milliseconds(), PolicyAuditHash: r.Decision.Hash,
		CreatedAt: now.UTC().Truncate(time.Millisecond),
	}
	m.ExpiresAt = m.CreatedAt.Add(ttl)
	if r.Request != nil && r.Request.Dir != "" {
		m.RelativeCwd = r.Request.Dir
	}
	if r.Decision.Code != "" {
		m.CodeSHA256 = &r.Decision.Code
	}
	switch {
	case r.Result.Signal != 0:
		name := unix.SignalName(unix.Signal(r.Result.Signal))
		if name == "" { // real-time signals have no names (signal(7))
			name = fmt.Sprintf("SIG%d", r.Result.Signal)
		}
		m.Signal = &name
	case r.Status == job.Success || r.Status == job.Failure:
		m.ExitCode = &r.Result.ExitCode
	}
	return m
}

// errEmpty is the error for a manifest that had not reached the disk at a power cut: the artifact does not exist
// then.
var errEmpty = errors.New("the manifest is empty")

// parseManifest parses a manifest and checks that newManifest can have made it.
func parseManifest(handle string, r io.Reader) (*Manifest, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return nil, err
	}
	switch {
	case len(text) == 0:
		return nil, errEmpty
	case len(text) > maxManifest:
		return nil, fmt.Errorf("it is larger than %d bytes", maxManifest)
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, err
	}
	switch {
	case m.Version != manifestVersion:
		return nil, fmt.Errorf("version %d is not supported, only version %d", m.Version, manifestVersion)
	case m.ArtifactID != handle:
		return nil, errors.New("it describes another artifact")
	case !strings.HasPrefix(handle, handlePrefix(m.RepoID)):
		return nil, errors.New("it describes another repository's artifact")
	case m.ExpiresAt.Before(m.CreatedAt):
		return nil, errors.New("it expires before it was created")
	}
	for _, name := range [...]string{Stdout, Stderr} {
		if err := m.stream(name).check(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return m, nil
}

func (k storedStream) check() error {
	sha, err := hex.DecodeString(k.sha)
	switch {
	case err != nil || len(sha) != 32:
		return errors.New("the SHA-256 is missing or malformed")
	case k.bytes < 0 || k.bytes > maxStream || k.total < 0 || k.lines < 0:
		return errors.New("a size is negative or too large")
	}
	if g := k.gap; g != nil {
		within := g.Offset >= 0 && g.Marker >= 0 && g.Offset <= k.bytes && g.Marker <= k.bytes-g.Offset
		if !within || g.Bytes < 0 || g.Lines < 0 || g.Lines > k.lines {
			return errors.New("the gap is outside of the stream")
		}
	}
	return nil
}
