package cell

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"corral/cgroup"
	"corral/internal/fault"
)

// A fakeGroup is the group of an ended job that left looks in turn, and the last one for ever. A look with reclaimed set is not reached
// without a call of Reclaim.
type fakeGroup struct {
	looks    []fakeLook
	n        int
	reclaims int
}

type fakeLook struct {
	left      cgroup.Left
	reclaimed bool
}

func (g *fakeGroup) Left() (cgroup.Left, error) {
	l := g.looks[g.n]
	if g.n < len(g.looks)-1 && !g.looks[g.n+1].reclaimed {
		g.n++
	}
	return l.left, nil
}

func (g *fakeGroup) Reclaim() error {
	g.reclaims++
	if g.n < len(g.looks)-1 && g.looks[g.n+1].reclaimed {
		g.n++
	}
	return nil
}

var small smallLeft

// TestAwaitLeft: memory is said to be held only when the kernel was asked twice to reclaim it, or if it is shared, and from then on at
// each look. The kernel is asked only if the supervisor wants it.
func TestAwaitLeft(t *testing.T) {
	const mib = 1 << 20
	type told struct {
		kind  LeftKind
		bytes int64
	}
	nothing, shared, other := cgroup.Left{Shared: leftMin / 2, Other: leftMin / 2}, cgroup.Left{Shared: mib, Other: 9}, cgroup.Left{Shared: 9, Other: mib}
	none := told{}
	for _, c := range []struct {
		name     string
		looks    []fakeLook
		told     []told
		reclaims int
		spare    bool // the supervisor does not want the kernel to reclaim
	}{
		{"nothing", []fakeLook{{nothing, false}}, []told{none}, 0, false},
		{"shared", []fakeLook{{shared, false}, {shared, false}, {nothing, false}}, []told{{LeftShared, mib + 9}, {LeftShared, mib + 9}, none}, 0, false},
		{"reclaimable", []fakeLook{{other, false}, {nothing, true}}, []told{{LeftUnknown, mib + 9}, none}, 1, false},
		{
			"reclaimable later",
			[]fakeLook{{other, false}, {other, true}, {nothing, true}},
			[]told{{LeftUnknown, mib + 9}, {LeftUnknown, mib + 9}, {LeftUnknown, mib + 9}, none},
			2, false,
		},
		{
			"not much",
			[]fakeLook{{other, false}, {other, false}, {nothing, false}},
			[]told{{LeftUnknown, mib + 9}, {LeftUnknown, mib + 9}, {LeftUnknown, mib + 9}, {LeftUnknown, mib + 9}, none},
			0, true,
		},
		{"partly shared", []fakeLook{{other, false}, {shared, true}, {nothing, false}}, []told{{LeftUnknown, mib + 9}, {LeftShared, mib + 9}, none}, 1, false},
		{
			"held",
			[]fakeLook{{other, false}, {other, false}, {other, false}, {other, false}, {other, false}, {nothing, false}},
			[]told{{LeftUnknown, mib + 9}, {LeftUnknown, mib + 9}, {LeftUnknown, mib + 9}, {LeftKernel, mib + 9}, {LeftKernel, mib + 9}, none},
			3, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &fakeGroup{looks: c.looks}
				var all []told
				l := leftMemory{g, small.least, leftLater, func() LeftSetter {
					return func(kind LeftKind, bytes int64) bool {
						all = append(all, told{kind, bytes})
						return !c.spare
					}
				}}
				l.await(t.Context(), new(fault.Mutex))()
				if !slices.Equal(all, c.told) || g.reclaims != c.reclaims {
					t.Errorf("told %v, want %v; %d attempts to reclaim, want %d", all, c.told, g.reclaims, c.reclaims)
				}
			})
		})
	}
	t.Run("end of the supervisor", func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		end()
		g := &fakeGroup{looks: []fakeLook{{other, false}}}
		l := leftMemory{g, small.least, leftLater, func() LeftSetter { return func(LeftKind, int64) bool { return true } }}
		if l.await(ctx, new(fault.Mutex))(); g.reclaims > 0 {
			t.Error("cached files were dropped")
		}
	})
}

// TestReclaimsSeldom: what is held for long is not reclaimed at each look.
func TestReclaimsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGroup{looks: slices.Repeat([]fakeLook{{cgroup.Left{Other: 1 << 20}, false}}, 1000)}
		g.looks = append(g.looks, fakeLook{})
		looks := 0
		l := leftMemory{g, small.least, leftLater, func() LeftSetter { return func(LeftKind, int64) bool { looks++; return true } }}
		l.await(t.Context(), new(fault.Mutex))()
		if g.reclaims > looks/20 {
			t.Errorf("%d attempts to reclaim, %d times told", g.reclaims, looks)
		}
	})
}
