package meter

import "corral/internal/test/sandboxtest"

var eventually = sandboxtest.Settled
