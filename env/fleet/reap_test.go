package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env"
)

// shed is a place that exists only in memory.
type shed struct {
	things []Thing
	// later changes the things before each further inventory. stuck is the name of one that cannot be removed.
	later func(s *shed, inventories int)
	stuck string

	mu    sync.Mutex // things are removed at the same time
	taken int
	inUse []string
}

func (s *shed) Inventory(context.Context) (Inventory, error) {
	if s.taken++; s.taken > 1 && s.later != nil {
		s.later(s, s.taken)
	}
	return Inventory{Now: time.Now(), Things: slices.Clone(s.things)}, nil
}

func (s *shed) Sweep(_ context.Context, _ time.Time, inUse map[string]bool, _ env.ReapOptions) ([]env.Leftover, error) {
	s.inUse = nil
	for name := range inUse {
		s.inUse = append(s.inUse, name)
	}
	slices.Sort(s.inUse)
	return nil, nil
}

// put adds a thing of an owner that was last seen so long ago. One that is called "lease" is a lease.
func (s *shed) put(who, name string, ago time.Duration) {
	s.things = append(s.things, Thing{
		Owner: who, Lease: name == "lease", Seen: time.Now().Add(-ago), Uses: []string{"uses " + name},
		Leftover: env.Leftover{ID: name, Owner: who},
		Remove: func(context.Context) error {
			if name == s.stuck {
				return errors.New(name + " is stuck")
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.things = slices.DeleteFunc(s.things, func(t Thing) bool { return t.Owner == who && t.Leftover.ID == name })
			return nil
		},
	})
}

func ids(left []env.Leftover) string {
	var all []string
	for _, l := range left {
		all = append(all, l.ID)
	}
	return strings.Join(all, " ")
}

func TestReap(t *testing.T) {
	t.Parallel()
	here, far := This(), "elsewhere/12/34/x"
	neighbour, gone := here.String()+"/neighbour", Owner{Machine: here.Machine, Process: here.Process}
	gone.PID = 1<<22 + 1
	type put struct {
		who, name string
		ago       time.Duration
	}
	for name, c := range map[string]struct {
		has     []put
		options env.ReapOptions
		want    string
	}{
		"nothing": {},
		"processes of this machine, whatever their leases say": {
			has:  []put{{neighbour, "lives", time.Hour}, {neighbour, "lease", time.Hour}, {gone.String(), "dead", 0}},
			want: "dead"},
		"another machine's, with a lease renewed lately": {
			has: []put{{far, "lives", time.Hour}, {far, "lease", time.Minute}}},
		"another machine's, with a lease that it does not renew": {
			has: []put{{far, "lease", 3 * time.Minute}, {far, "dead", time.Hour}}, want: "dead lease"},
		"another machine's, without a lease: young": {has: []put{{far, "old", time.Hour}, {far, "young", time.Minute}}},
		"another machine's, without a lease: old":   {has: []put{{far, "old", time.Hour}}, want: "old"},
		"a name that says nothing":                  {has: []put{{"nobody", "old", time.Hour}}, want: "old"},
		"less patience": {
			has: []put{{far, "lease", time.Minute}}, options: env.ReapOptions{Stale: 30 * time.Second}, want: "lease"},
		"all": {has: []put{{neighbour, "lives", 0}, {"self", "mine", 0}, {far, "lease", 0}},
			options: env.ReapOptions{All: true}, want: "lives mine lease"},
		"this process": {has: []put{{"self", "mine", time.Hour}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, dry := range []bool{true, false} {
					s := &shed{}
					for _, p := range c.has {
						s.put(p.who, p.name, p.ago)
					}
					c.options.DryRun = dry
					before := len(s.things)
					left, err := Reaper{Place: s, Self: "self"}.Reap(t.Context(), c.options)
					gone := before - len(s.things)
					if err != nil || len(left) != len(strings.Fields(c.want)) || ids(left) != c.want || !dry && gone != len(left) ||
						dry && gone > 0 {
						t.Errorf("dry run %v: removed %q (%d gone), %v; want %q", dry, ids(left), gone, err, c.want)
					}
				}
			})
		})
	}
}

// After an outage of the place, the leases of living owners are old, too. Reap waits to see whether they are renewed.
func TestReapAfterOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		silent time.Duration
		renews bool
		want   string
		within time.Duration
	}{
		{10 * time.Minute, true, "", time.Minute},
		{10 * time.Minute, false, "pod lease", time.Minute},
		{2 * time.Hour, false, "pod lease", time.Second}, // longer than any outage
	} {
		t.Run(fmt.Sprint(c.silent, " renews ", c.renews), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &shed{later: func(s *shed, _ int) {
					if c.renews {
						s.things[0].Seen = time.Now()
					}
				}}
				s.put("elsewhere/12/34", "lease", c.silent)
				s.put("elsewhere/12/34", "pod", 3*time.Hour)
				began := time.Now()
				left, err := Reaper{Place: s, Outage: time.Hour}.Reap(t.Context(), env.ReapOptions{})
				if took := time.Since(began); err != nil || ids(left) != c.want || took > c.within {
					t.Errorf("removed %q, %v in %v; want %q", ids(left), err, took, c.want)
				}
			})
		})
	}
}

// Something that a killed process asked for may appear only after the first round.
func TestReapLatecomer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shed{later: func(s *shed, inventories int) {
			if inventories == 2 {
				s.put("elsewhere/12/34", "late", time.Hour)
			}
		}}
		s.put("elsewhere/12/34", "lease", time.Hour)
		left, err := Reaper{Place: s}.Reap(t.Context(), env.ReapOptions{})
		if err != nil || ids(left) != "lease late" || s.taken != 3 {
			t.Errorf("removed %q, %v after %d inventories", ids(left), err, s.taken)
		}
	})
}

// If one thing cannot be removed, the others still are, and so is what no living owner uses.
func TestReapStuck(t *testing.T) {
	t.Parallel()
	s := &shed{stuck: "stuck"}
	for _, name := range []string{"lease", "stuck", "other"} {
		s.put("elsewhere/12/34", name, time.Hour)
	}
	s.put("self", "mine", time.Hour)
	left, err := Reaper{Place: s, Self: "self"}.Reap(t.Context(), env.ReapOptions{})
	if err == nil || ids(left) != "other lease" || !slices.Equal(s.inUse, []string{"uses mine"}) {
		t.Errorf("removed %q, %v, in use %q", ids(left), err, s.inUse)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	left, err = Reaper{Place: s}.Reap(ended, env.ReapOptions{All: true})
	if !errors.Is(err, context.Canceled) || left != nil {
		t.Errorf("with an ended context: removed %q, %v", ids(left), err)
	}
}

// What fails again is kept, and so is what is added in the meantime.
func TestOrphans(t *testing.T) {
	t.Parallel()
	var o Orphans[string]
	for _, k := range []string{"gone", "stuck", "stuck"} {
		o.Add(k)
	}
	err := o.Retry(func(k string) error {
		if k == "stuck" {
			o.Add("new")
			return errors.New(k)
		}
		return nil
	})
	if err == nil || err.Error() != "stuck" || o.Len() != 2 {
		t.Errorf("%d are left, %v; want stuck and new", o.Len(), err)
	}
	if err := o.Retry(func(string) error { return nil }); err != nil || o.Len() != 0 {
		t.Errorf("%d are left, %v", o.Len(), err)
	}
}
