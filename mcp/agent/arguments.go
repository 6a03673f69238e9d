package agent

import (
	"bytes"
	"encoding/json"

	"corral/internal/strictjson"
	"corral/mcp/tool"
)

// synonyms are other names of arguments, which models know from other tools.
var synonyms = map[string]string{
	"relativeCwd": "cwd", "working_directory": "cwd", "workdir": "cwd", "directory": "cwd",
	"lang": "language", "runtime": "language", "command": "code", "cmd": "code", "script": "code",
	"repo": "repoId", "run_in_background": "background",
	"jobId": "id", "job_id": "id", "artifactHandle": "handle", "queryTerms": "terms", "lineRange": "lines", "query": "search",
	"file": "path", "file_path": "path", "filePath": "path", "old_string": "old", "old_str": "old", "new_string": "new", "new_str": "new",
	"replace_all": "replaceAll",
}

// decode decodes arguments into the struct that into points to, as tool.Decode does with mode Tolerant. A key that is not an
// argument of the struct, but a synonym of one, counts as that. names are the struct's arguments.
func decode(raw json.RawMessage, into any, names ...string) error {
	return tool.Decode(rename(raw, names), into, tool.Tolerant)
}

// rename replaces synonyms of names in an object. It returns what is not an object unchanged.
func rename(raw json.RawMessage, names []string) json.RawMessage {
	if strictjson.Kind(raw) != "an object" || strictjson.Syntax(raw) != nil {
		return raw
	}
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for n, e := range strictjson.Entries(raw) {
		key := e.Key
		if to := synonyms[key]; to != "" && known[to] && !known[key] {
			key = to
		}
		if n > 0 {
			b.WriteByte(',')
		}
		b.Write(strictjson.Encode(key))
		b.WriteByte(':')
		b.Write(e.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}
