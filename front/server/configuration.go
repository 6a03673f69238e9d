package server

import (
	"os"

	"corral/internal/config"
	"corral/isolate/client/embed"
)

// ConfigSources returns the files that a front-end reads, see config.FrontSources. The one that the command line names is opened with
// the rights of the user who called sudo.
func ConfigSources(named string) []config.Source {
	list := config.FrontSources(os.Getenv, named, func(open func() error) error { return embed.Hint(open()) })
	for i := range list {
		if list[i].Path == config.DefaultPath {
			list[i].As = embed.Configuring.Do
		}
	}
	return list
}

// LoadConfig reads the configuration from the files in from, and returns the paths of those that exist. Root opens them, drops
// root, and parses them as another user.
func LoadConfig(from []config.Source) (c config.Config, files []string, err error) {
	f, err := config.OpenFront(from...)
	if dropped := embed.Drop(); dropped != nil {
		return c, nil, dropped
	}
	if err != nil {
		return c, nil, err
	}
	defer func() { _ = f.Close() }()
	c, err = f.Load()
	return c, f.Files(), err
}
