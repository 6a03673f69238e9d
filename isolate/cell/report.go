package cell

import "log/slog"

// A reporter logs what a jail leaves behind.
type reporter struct {
	log  *slog.Logger
	jail string
}

// report logs what could not be removed. The next supervisor's recovery finds it by name.
func (r reporter) report(what string, err error) {
	if err != nil {
		r.log.Error("left behind", "jail", r.jail, "what", what, "error", err)
	}
}
