package settings

import (
	"corral/front/privilege"
	"corral/internal/config"
)

// Load reads the configuration from the files in from, and returns the paths of those that exist. Root opens them, drops
// root, and parses them as another user.
func Load(from []config.Source) (c config.Config, files []string, err error) {
	f, err := config.OpenFront(from...)
	if dropped := privilege.Drop(); dropped != nil {
		return c, nil, dropped
	}
	if err != nil {
		return c, nil, err
	}
	defer func() { _ = f.Close() }()
	c, err = f.Load()
	return c, f.Files(), err
}
