package verifycmd

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepswe/env"
)

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, "rollouts")
		p.plan("rollouts", 10)
		p.known(new(true))
		p.known(new(false))
		for range 3 {
			p.start()
		}
		p.add(1_500)
		time.Sleep(30 * time.Second)
		p.end(new(true), false, "a: solved")
		p.add(2_000_000)
		time.Sleep(30 * time.Second)
		p.end(new(false), false, "b: unresolved")
		time.Sleep(time.Minute)
		p.end(nil, true, "c: failed: \x1b[31mno disk\n")
		p.note("%d things", 2)
		p.pull(env.Progress{Action: env.Pulling, Image: "a", Bytes: 1e6, Total: 9e6})
		p.pull(env.Progress{Action: env.Pulling, Image: "b", Bytes: 2e6, Total: 9e6})
		p.start()
		p.end(new(false), false, "d: unresolved")
		p.pull(env.Progress{Action: env.Pulling, Image: "a", Done: true, Err: errors.New("no such image")})
		p.pull(env.Progress{Action: env.Pulling, Image: "b", Total: 9e6, Done: true})
		p.plan("judging", 2)
		p.known(nil)
		p.start()
		time.Sleep(time.Second)
		p.end(nil, false, "e: score 0.5") // a judgement is neither solved nor failed
		p.close()
		want := []string{
			"[3/10, 2 running, 2 solved, 1.5k tokens] a: solved",
			"[4/10, 1 running, 2 solved, 2.0M tokens, 2.0/min, 3:00 left] b: unresolved",
			"[5/10, 0 running, 2 solved, 1 failed, 2.0M tokens, 1.5/min, 3:20 left] c: failed: ·[31mno disk·",
			"2 things",
			"[6/10, 0 running, 2 solved, 1 failed, 2.0M tokens, 2.0/min, 2:00 left, pulling 2 images, 3MB of 18MB] d: unresolved",
			"pulled b, 9MB",
			"[2/2, 0 running, 60.0/min] e: score 0.5", "",
		}
		if got := strings.Split(out.String(), "\n"); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", out.String(), strings.Join(want, "\n"))
		}
	})
}
