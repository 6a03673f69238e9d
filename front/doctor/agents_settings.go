package doctor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// maxSettings is the maximum size of a file of settings in bytes.
const maxSettings = 1 << 20

// readSettings reads a file; one that does not exist is empty.
func readSettings(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSettings+1))
	if err == nil && len(text) > maxSettings {
		err = fmt.Errorf("%s is too large: the maximum is %d bytes", file, maxSettings)
	}
	return text, err
}

// replace writes a file as a whole, or not at all. A link stays, with the file that it leads to.
func replace(file string, text []byte) error {
	mode := os.FileMode(0o600)
	if info, err := os.Lstat(file); err == nil {
		if mode = info.Mode(); !mode.IsRegular() {
			return fmt.Errorf("%s is not changed: it is not a regular file\nhint: add the lines by hand", file)
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = fresh.Write(text)
	err = errors.Join(err, fresh.Chmod(mode.Perm()), fresh.Sync(), fresh.Close())
	if err == nil {
		err = os.Rename(fresh.Name(), file)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(fresh.Name()))
	}
	return err
}

// insert returns JSON with a member added to the object of a name, or to the outermost one if that is empty. All else stays as it is.
func insert(text []byte, object, name, value string) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}\n")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, fmt.Errorf("it must be an object of JSON: %w", err)
	}
	quoted, err := json.Marshal(value)
	added, at := fmt.Sprintf("%q: %s", name, quoted), bytes.IndexByte(text, '{')
	switch raw, there := members[object]; {
	case there:
		members, at = nil, position(text, object)
		err = errors.Join(err, json.Unmarshal(raw, &members))
	case object != "":
		added = fmt.Sprintf("%q: {%s}", object, added)
	}
	if members[name] != nil || err != nil {
		return nil, errors.Join(fmt.Errorf("it has another %q", cmp.Or(object, name)), err)
	}
	if len(members) > 0 {
		added += ", "
	}
	return slices.Concat(text[:at+1], []byte(added), text[at+1:]), nil
}

// position returns where the value of a member of an object of JSON begins.
func position(text []byte, name string) int {
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token()
	for d.More() {
		key, _ := d.Token()
		var raw json.RawMessage
		if err := d.Decode(&raw); err == nil && key == name {
			return int(d.InputOffset()) - len(raw)
		}
	}
	return 0
}
