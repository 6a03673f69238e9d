package image

import (
	"errors"
	"fmt"
)

var (
	errEmpty = errors.New("the root file system is empty")
	errText  = fmt.Errorf("names and link targets together have more than %d bytes", maxText)
)

func tooMany(limit int64) error {
	return fmt.Errorf("the root file system has more than %d files\nhint: --inodes sets the maximum", limit)
}

func tooLarge(limit int64) error {
	return fmt.Errorf("the root file system has more than %d bytes\nhint: --disk sets the maximum", limit)
}

func changed(name string) error { return fmt.Errorf("%.200q changed while it was read", name) }
