package meter

import "corral/internal/test/isolatetest"

var eventually = isolatetest.Eventually
