package audit

import (
	"encoding/json"
	"errors"
	"time"
)

// A Record is a parsed line. Fields that its event does not have are zero. Texts were chosen by a front-end or a job:
// quote them before showing them.
type Record struct {
	Seq       uint64            `json:"seq"`
	Prev      string            `json:"prev"`
	Time      time.Time         `json:"time"`
	Event     Event             `json:"event"`
	Instance  string            `json:"instance"`
	Job       string            `json:"job"`
	Of        uint64            `json:"of"`
	Peer      *uint32           `json:"peer"`
	Embedded  bool              `json:"embedded"`
	Account   *uint32           `json:"account"`
	PID       int               `json:"pid"`
	Repo      string            `json:"repo"`
	RepoBytes []byte            `json:"repo_base64"` // nil if Repo is the path
	Common    string            `json:"common"`
	Dir       string            `json:"dir"`
	Profile   string            `json:"profile"`
	Workspace string            `json:"workspace"`
	Protect   string            `json:"protect"`
	Network   string            `json:"network"`
	Terminal  bool              `json:"terminal"`
	Limits    map[string]int64  `json:"limits"`
	Claimed   map[string]string `json:"claimed"`
	Status    string            `json:"status"`
	Exit      int               `json:"exit"`
	Signal    int               `json:"signal"`
	Limit     string            `json:"limit"`
	Cgroup    string            `json:"cgroup"`
	Sensitive int               `json:"sensitive"`
	Usage     map[string]int64  `json:"usage"`
	Reached   string            `json:"reached"`
	Step      string            `json:"step"`
	Errno     int               `json:"errno"`
	Message   string            `json:"message"`
	Count     uint64            `json:"count"`
	Since     *time.Time        `json:"since"`
	Next      string            `json:"next"`
	Kept      uint64            `json:"kept"`
	CutBytes  int64             `json:"cut_bytes"`
	Saved     string            `json:"saved"`
	Missing   uint64            `json:"missing"`
}

// RepoPath returns the bytes of the repository's path, or "" if the record has none.
func (r *Record) RepoPath() string {
	if r.RepoBytes != nil {
		return string(r.RepoBytes)
	}
	return r.Repo
}

// decodeRecord decodes all fields of a line that parseLine accepts.
func decodeRecord(line []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, errors.New("not a record")
	}
	return &r, nil
}
