package usage

import (
	"strings"
	"testing"

	"corral/isolate/client"
	"corral/isolate/host"
)

// TestDefaults: the defaults that the texts name are those of the code.
func TestDefaults(t *testing.T) {
	for _, tt := range []struct{ text, option, value string }{
		{Run, "--supervisor SOCKET", client.DefaultSocket},
		{Session, "--supervisor SOCKET", client.DefaultSocket},
		{Corrald, "--socket PATH", client.DefaultSocket},
		{Corrald, "--state DIR", host.DefaultStateDir},
	} {
		_, after, found := strings.Cut(tt.text, "\n  "+tt.option)
		line, _, _ := strings.Cut(after, "\n")
		if !found || !strings.Contains(line, "(default "+tt.value) {
			t.Errorf("%s: %q does not name %s", tt.option, line, tt.value)
		}
	}
}
