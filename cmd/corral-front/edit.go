package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"corral/internal/config"
	"corral/internal/text"
)

// editConfig changes the file at path, "" for the default one: root's is the operator's, others' is their own. It returns
// which one it was.
//
// Root reads and writes the file's bytes, and no more: what they mean is for a child to know, which gives root up.
func editConfig(path string, edit config.Edit) (string, error) {
	root := os.Geteuid() == 0
	o := config.LoadOptions{Trusted: root, Links: !root}
	switch own := config.UserPath(os.Getenv); {
	case root && path == "":
		path = config.DefaultPath
	case !root && (path == "" || path == own):
		if own == "" {
			return "", errors.New("no home directory is known\nhint: --config names a file")
		}
		path, o.Own, o.User = own, true, true
	}
	change := func(old []byte) ([]byte, error) {
		e := fileEdit{path, o.User, old != nil, old, edit}
		if root {
			return e.asSomebodyElse()
		}
		return e.apply()
	}
	err := config.Rewrite(path, o, change)
	if errors.Is(err, os.ErrPermission) && !root && path == config.DefaultPath {
		err = fmt.Errorf("%w\nhint: it is the operator's: run with sudo", err)
	}
	return path, err
}

// A fileEdit is an edit with the file that it is made in.
type fileEdit struct {
	Name    string
	User    bool
	Exists  bool
	Content []byte // in base64, so that not a byte of it changes on the way
	Edit    config.Edit
}

// apply returns the file as it shall be, and says what else changes by it.
func (e *fileEdit) apply() ([]byte, error) {
	var old []byte
	if e.Exists {
		old = append([]byte{}, e.Content...)
	}
	o := config.LoadOptions{User: e.User}
	edited, err := e.Edit.Apply(e.Name, old, o)
	if err != nil || e.User {
		return edited, err
	}
	before := config.Default()
	if e.Exists {
		if before, err = config.Parse(e.Name, old, o); err != nil {
			return nil, err
		}
	}
	after, err := config.Parse(e.Name, edited, o)
	if err != nil {
		return nil, err
	}
	switch was, is := before.ServesOwn(len(before.Repos)), after.ServesOwn(len(after.Repos)); {
	case was && !is:
		note("users are no longer served the directories that they own, now that repositories are listed: see own_directories")
	case is && !was:
		note("users are served the directories that they own, now that no repository is listed: see own_directories")
	}
	return edited, nil
}

func note(said string) { fmt.Fprintln(os.Stderr, "corral: note:", text.Escape(said)) }

// editor is the name of the command that changes a configuration for root: not one that people type.
const editor = "edit-config"

// asSomebodyElse has a child apply the edit.
func (e *fileEdit) asSomebodyElse() ([]byte, error) {
	question, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	answer, err := askUser(context.Background(), editor, question, maxQuestion)
	if errors.Is(err, errSaid) {
		return nil, errors.New("nothing is changed")
	}
	return answer, err
}

// maxQuestion bounds what an editor reads, and what it writes: a file in base64, and an edit.
const maxQuestion = 2*config.MaxSize + 1<<20

// editorCommand is that child.
func editorCommand(args []string) (int, error) {
	var e fileEdit
	if ended, code, err := beAsked(editor, args, maxQuestion, &e); ended {
		return code, err
	}
	edited, err := e.apply()
	if err != nil {
		return failure, err
	}
	return say(string(edited))
}
