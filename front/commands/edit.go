package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"corral/front/cli"
	"corral/internal/config"
	"corral/isolate/client/embed"
)

// editConfig changes the configuration whose file is at path. With "", it is the operator's for root, and the user's own
// for others. It returns the path of the file that it created, removed or changed.
//
// Root reads and writes the bytes of files, and no more: a helper process that has dropped root parses them.
func editConfig(path string, edit config.Edit) (changed string, err error) {
	root := embed.Root()
	o := config.LoadOptions{Trusted: root, Links: !root}
	switch own := config.UserPath(os.Getenv); {
	case root && path == "":
		path = config.DefaultPath
	case !root && (path == "" || path == own):
		if own == "" {
			return "", errors.New("the home directory is unknown\nhint: --config names a file")
		}
		path, o.Own, o.User = own, true, true
	}
	update := func() error {
		return config.Update(path, o, func(files config.Files) (change config.Change, err error) {
			e := fileEdit{path, files, edit}
			if root {
				change, err = e.applyInHelper()
			} else {
				change, err = e.apply()
			}
			changed = change.Name
			return change, err
		})
	}
	if path == config.DefaultPath {
		err = embed.Configuring.Do(update)
	} else {
		err = embed.Configuring.At(path, update)
	}
	if errors.Is(err, os.ErrPermission) && !root && path == config.DefaultPath {
		err = fmt.Errorf("%w\nhint: it belongs to the operator: run with sudo", err)
	}
	return changed, err
}

// A fileEdit is an edit with the files in which it is made.
type fileEdit struct {
	Path  string // of the configuration file
	Files config.Files
	Edit  config.Edit
}

// apply returns the change that the edit makes. It prints a note about side effects.
func (e *fileEdit) apply() (config.Change, error) {
	change, before, after, err := e.Edit.Apply(e.Path, e.Files)
	if err != nil || e.Files.User {
		return change, err
	}
	switch was, is := before.ServesOwn(len(before.Repos)), after.ServesOwn(len(after.Repos)); {
	case was && !is:
		cli.Note("users are no longer served the directories that they own, now that repositories are listed: see own_directories")
	case is && !was:
		cli.Note("users are served the directories that they own, now that no repository is listed: see own_directories")
	}
	return change, nil
}

// Editor is the name of the command that changes a configuration for root. People do not type it.
const Editor = "edit-config"

// applyInHelper applies the edit in a helper process.
func (e *fileEdit) applyInHelper() (change config.Change, err error) {
	question, err := json.Marshal(e)
	if err != nil {
		return change, err
	}
	answer, err := cli.RunHelper(context.Background(), Editor, question, maxEditQuestion)
	if errors.Is(err, cli.ErrHelper) {
		return change, errors.New("nothing was changed")
	}
	if err != nil {
		return change, err
	}
	return change, json.Unmarshal(answer, &change)
}

// maxEditQuestion bounds what an editor reads, and what it writes: files in base64, and an edit.
const maxEditQuestion = 2*config.MaxFiles + 1<<20

// EditorCommand is the cli.Command of Editor, which runs as a helper process.
func EditorCommand(args []string) error {
	var e fileEdit
	if err := cli.ReadQuestion(Editor, args, maxEditQuestion, &e); err != nil {
		return err
	}
	change, err := e.apply()
	if err != nil {
		return err
	}
	answer, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return cli.Print(string(answer))
}
