package artifact

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"corral/job"
)

// Names of the streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// manifestName is the file name of a manifest.
const manifestName = "manifest.json"

// streamFile returns the file name of a stream.
func streamFile(stream string) string { return stream + ".gz" }

// artifactFiles are the files of an artifact.
var artifactFiles = [3]string{streamFile(Stdout), streamFile(Stderr), manifestName}

const (
	// manifestVersion is the version of the form of artifacts.
	manifestVersion = 1
	maxManifest     = 256 << 10
	// maxStream is the maximum number of bytes of a stream that are ever read back.
	maxStream = 1 << 30
)

// A Manifest describes an artifact. Sizes, lines and hashes of a stream are those of the stored stream; totals are of
// what the job wrote.
type Manifest struct {
	Version         int       `json:"version"`
	ArtifactID      string    `json:"artifactId"`
	RepoID          string    `json:"repoId"`
	Runtime         string    `json:"runtime"`
	Principal       string    `json:"principal"`
	Status          string    `json:"status"`
	ArgsHash        string    `json:"argsHash"`
	CodeSHA256      *string   `json:"codeSha256"` // null without code
	RelativeCwd     string    `json:"relativeCwd"`
	ExitCode        *int      `json:"exitCode"` // null after a signal or at the deadline
	Signal          *string   `json:"signal"`   // such as SIGTERM
	DurationMs      int64     `json:"durationMs"`
	StdoutBytes     int64     `json:"stdoutBytes"`
	StderrBytes     int64     `json:"stderrBytes"`
	StdoutSHA256    string    `json:"stdoutSha256"`
	StderrSHA256    string    `json:"stderrSha256"`
	StdoutLines     int64     `json:"stdoutLines"` // including lines left out
	StderrLines     int64     `json:"stderrLines"`
	StdoutGap       *Gap      `json:"stdoutLeftOut,omitempty"`
	StderrGap       *Gap      `json:"stderrLeftOut,omitempty"`
	TotalStdout     int64     `json:"totalStdoutBytes"`
	TotalStderr     int64     `json:"totalStderrBytes"`
	PolicyAuditHash string    `json:"policyAuditHash"`
	CreatedAt       time.Time `json:"createdAt"`
	ExpiresAt       time.Time `json:"expiresAt"`
	Run             *Run      `json:"run,omitempty"` // nil in artifacts of earlier versions
}

// A Run is the life of the job of an artifact.
type Run struct {
	Job       string    `json:"job"` // id
	Tool      string    `json:"tool"`
	Limit     string    `json:"limit,omitempty"` // that was reached
	Requested time.Time `json:"requestedAt"`
	Decided   time.Time `json:"decidedAt"`
	Begun     time.Time `json:"begunAt"` // the program was executed
	Ended     time.Time `json:"endedAt"` // no process of it was left
	CPUMs     int64     `json:"cpuMs"`   // -1 is unknown, here and below
	Peak      int64     `json:"peakMemoryBytes"`
	Samples   []Sample  `json:"samples,omitempty"` // at most job.MaxSamples
}

// A Sample is a job.Sample.
type Sample struct {
	AtMs   int64 `json:"atMs"`
	CPUMs  int64 `json:"cpuMs"`
	Memory int64 `json:"memoryBytes"`
}

// A storedStream is a manifest's description of one stream.
type storedStream struct {
	Name   string
	Bytes  int64  // as stored, before compression
	Total  int64  // as written by the job
	Lines  int64  // including lines left out
	SHA256 string // of the stored stream, before compression, in hexadecimal digits
	Gap    *Gap   // nil if nothing was left out
	Mark   []byte // that its gzip header must have, if it has one; see Mark
}

// Stream returns the description of a stream, Stdout or Stderr.
func (m *Manifest) Stream(name string) storedStream {
	owner := ownerMark(m.ArtifactID, m.Principal)
	if name == Stderr {
		return storedStream{name, m.StderrBytes, m.TotalStderr, m.StderrLines, m.StderrSHA256, m.StderrGap, owner}
	}
	return storedStream{name, m.StdoutBytes, m.TotalStdout, m.StdoutLines, m.StdoutSHA256, m.StdoutGap, owner}
}

// errNoManifest is the error for a manifest that had not reached the disk at a power cut: the artifact does not exist
// then.
var errNoManifest = errors.New("the manifest is empty")

// parseManifest reads the manifest of the artifact with that handle, at most 256 KiB, and checks it. The error is errNoManifest, one of
// r, or says what is wrong.
func parseManifest(handle string, r io.Reader) (*Manifest, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err != nil {
		return nil, err
	}
	switch {
	case len(text) == 0:
		return nil, errNoManifest
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
	if m.Run != nil && len(m.Run.Samples) > job.MaxSamples {
		return nil, fmt.Errorf("it has %d samples, the maximum is %d", len(m.Run.Samples), job.MaxSamples)
	}
	for _, name := range [...]string{Stdout, Stderr} {
		if err := m.Stream(name).check(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return m, nil
}

func (k storedStream) check() error {
	sha, err := hex.DecodeString(k.SHA256)
	switch {
	case err != nil || len(sha) != 32:
		return errors.New("the SHA-256 is missing or malformed")
	case k.Bytes < 0 || k.Bytes > maxStream || k.Total < 0 || k.Lines < 0:
		return errors.New("a size is negative or too large")
	}
	if g := k.Gap; g != nil {
		within := g.Offset >= 0 && g.Marker >= 0 && g.Offset <= k.Bytes && g.Marker <= k.Bytes-g.Offset
		if !within || g.Bytes < 0 || g.Lines < 0 || g.Lines > k.Lines {
			return errors.New("the gap is outside of the stream")
		}
	}
	return nil
}
