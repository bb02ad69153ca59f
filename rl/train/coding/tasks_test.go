package coding

import (
	"strings"
	"testing"

	"deepswe/rl/train/part"
)

func TestHoldOut(t *testing.T) {
	t.Parallel()
	c := chosenTasks{ids: map[part.Split][]string{part.Train: {"a", "b", "c", "d", "e"}}}
	c.holdOut(0.3)
	if len(c.ids[part.Validation]) != 2 || len(c.ids[part.Train]) != 3 {
		t.Fatalf("%v", c.ids)
	}
	more := chosenTasks{ids: map[part.Split][]string{part.Train: append([]string{"f"}, "a", "b", "c", "d", "e")}}
	more.holdOut(0.3)
	moved := 0
	for _, id := range c.ids[part.Validation] {
		if !strings.Contains(strings.Join(more.ids[part.Validation], ""), id) {
			moved++
		}
	}
	if moved > 1 {
		t.Errorf("another task moved %d others: %v and %v", moved, c.ids, more.ids)
	}
}
