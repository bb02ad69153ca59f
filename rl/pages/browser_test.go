package pages

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepswe/agent/attempt"
	"deepswe/agent/trajectory"
	"deepswe/env/testkit"
)

// site serves two evaluations, a ranking and a training run.
func site(t *testing.T) (url, parent string) {
	t.Helper()
	parent = t.TempDir()
	large := sample{model: "Qwen3-32B", tasks: 10, k: 4, skill: .45}
	large.rank(t, large.write(t, filepath.Join(parent, "qwen-32b")), filepath.Join(parent, "chosen"))
	sample{model: "Qwen3-8B", tasks: 10, k: 4, skill: .3}.write(t, filepath.Join(parent, "qwen-8b"))
	if err := os.Rename(trainedRun(t), filepath.Join(parent, "lake")); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler(t, parent))
	t.Cleanup(s.Close)
	return s.URL, parent
}

const firstRollout = "group=django__django-11000&attempt=0"

// Every page is drawn at two widths, light and dark. No script fails, no page breaks its security policy, and nothing
// is wider than the screen. DEEPSWE_SCREENS names a directory for the screenshots.
func TestScreens(t *testing.T) {
	b := startBrowser(t)
	url, _ := site(t)
	into := os.Getenv("DEEPSWE_SCREENS")
	if into == "" {
		into = t.TempDir()
	}
	p := b.tab()
	for name, path := range map[string]string{
		"runs": "/", "evaluation": "/qwen-32b/", "tasks": "/qwen-32b/?by=task", "failures": "/qwen-32b/failures",
		"task": "/qwen-32b/task?name=django__django-11000", "rollout": "/qwen-32b/rollout?" + firstRollout,
		"log": "/qwen-32b/log?" + firstRollout, "compare": "/-/compare?run=qwen-8b&run=qwen-32b", "training": "/lake/",
		"step": "/lake/step/1", "tokens": "/lake/rollout?step=1&group=000001.0&attempt=0", "visits": "/lake/tasks",
		"ranking": "/qwen-32b/ranking", "overlay": "/-/compare?run=lake&run=lake",
	} {
		p.open(url + path)
		for _, width := range []int{1280, 420} {
			for _, scheme := range []string{"light", "dark"} {
				p.shoot(filepath.Join(into, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), width, 1400, scheme == "dark")
			}
			if p.eval("document.documentElement.scrollWidth > innerWidth") == "true" {
				t.Errorf("%s is wider than a screen of %d", name, width)
			}
		}
		if got := p.eval("getComputedStyle(document.body).backgroundColor"); got != "rgb(20, 24, 29)" {
			t.Errorf("%s is %s in the dark: its style was not loaded", name, got)
		}
	}
	for _, said := range b.complaints {
		t.Error(said)
	}
}

// Tables are filtered and sorted, runs are ticked and compared, and keys move, fold, search and turn pages.
func TestKeysAndForms(t *testing.T) {
	b := startBrowser(t)
	url, _ := site(t)
	p := b.tab()
	p.open(url + "/qwen-32b/")
	p.press("/")
	p.wait(`document.activeElement.name === "q"`)
	for _, key := range "is:unsolved repo:django" {
		p.press(string(key))
	}
	p.press("Enter")
	p.wait(`location.search.startsWith("?q=is%3Aunsolved+repo%3Adjango")`)
	left := `[...document.querySelectorAll("tbody td:nth-child(2)")].every(c => c.textContent === "unsolved")`
	if p.eval(left) != "true" {
		t.Error("the filter leaves solved attempts")
	}
	p.eval(`[...document.querySelectorAll("th a")].find(a => a.textContent === "Steps").click()`)
	p.wait(`location.search.includes("sort=-steps") && location.search.includes("q=is")`)
	p.press("j", "j", "k")
	p.wait(`document.querySelectorAll("tr.here").length === 1`)
	p.wait(`document.querySelectorAll("tr")[1].classList.contains("here")`)
	p.press("Enter")
	p.wait(`location.pathname === "/qwen-32b/rollout"`)

	p.open(url + "/qwen-32b/rollout?" + firstRollout)
	p.press("j", "j", "f")
	p.wait(`location.hash === "#s2" && document.getElementById("s2").open`)
	p.press("f")
	p.wait(`!document.getElementById("s2").open`)
	p.press("F")
	p.wait(`[...document.querySelectorAll("details.step")].every(d => d.open)`)
	p.press("?")
	p.wait(`document.getElementById("keys").open`)
	p.press("Escape", "]")
	p.wait(`location.search.includes("attempt=1")`)
	p.press("[")
	p.wait(`location.search.includes("attempt=0")`)
	p.eval(`document.querySelector("details.edits details[data-load]").open = true; ` +
		`document.querySelector("details.edits details[data-load]").scrollIntoView()`)
	p.wait(`[...document.querySelectorAll("details.edits details.output .note")].some(n => n.textContent.startsWith("Made of"))`)
	p.open(url + "/qwen-32b/rollout?" + firstRollout + "#s5")
	p.wait(`document.getElementById("s5").open`)

	p.open(url + "/")
	p.eval(`document.querySelectorAll("input[value^=qwen]").forEach(i => i.click())`)
	p.eval(`[...document.querySelectorAll("button")].find(b => b.textContent.startsWith("Compare")).click()`)
	p.wait(`document.body.textContent.includes("McNemar p")`)

	p.open(url + "/lake/")
	p.eval(`[...document.querySelectorAll("circle.touch")].find(c => c.textContent.includes("step 2:"))` +
		`.dispatchEvent(new MouseEvent("click", {bubbles: true}))`)
	p.wait(`location.pathname === "/lake/step/2"`)

	p.open(url + "/lake/")
	p.drag(`document.querySelector("[data-zoom] svg[data-from]")`, .55, .99)
	p.wait(`location.search === "?from=2&to=3"`)
	p.wait(`document.querySelector(".subtitle").textContent.startsWith("Steps 2 to 3") && ` +
		`document.querySelector("svg[data-from]").dataset.from === "2"`)
	p.open(url + "/lake/rollout?step=1&group=000001.0&attempt=0")
	p.press("]")
	p.wait(`location.search.includes("attempt=1")`)
	p.eval(`(() => { const f = document.querySelector("form.filter"); f.find.value = "token"; f.submit(); })()`)
	p.wait(`location.search.includes("find=token") && location.search.includes("step=1") && ` +
		`document.querySelector("h1").textContent.endsWith("#1")`)
	for _, said := range b.complaints {
		t.Error(said)
	}
}

// The page of a live run shows what is added, and keeps its steps unfolded.
func TestLivePage(t *testing.T) {
	b := startBrowser(t)
	parent := t.TempDir()
	sample{model: "m", tasks: 1, k: 1, open: true}.write(t, filepath.Join(parent, "run"))
	s := httptest.NewServer(handler(t, parent))
	t.Cleanup(s.Close)
	p := b.tab()
	p.open(s.URL + "/run/rollout?" + firstRollout)
	p.eval(`document.getElementById("s1").open = true`)
	at := filepath.Join(parent, "run", "rollouts", "django__django-11000", "0")
	log, _, err := trajectory.Resume(filepath.Join(at, attempt.StepsFile))
	if err != nil {
		t.Fatal(err)
	}
	more := trajectory.Reply{Message: trajectory.Message{Content: "One more."}}
	if err := log.Append(trajectory.ReplyEvent(more)); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	p.wait(`document.body.textContent.includes("One more.") && document.getElementById("s1").open`)
	// What is looked at stays when it is removed from the disk, as training rollouts are.
	if err := os.RemoveAll(filepath.Join(parent, "run")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Second) // it is looked for again every three seconds
	if p.eval(`String(document.body.textContent.includes("One more."))`) != "true" {
		t.Error("the page has gone while it was read")
	}
}

// Nothing that a model or a repository wrote is executed, and a long trajectory loads its steps only when they are
// unfolded.
func TestHostileBrowser(t *testing.T) {
	b := startBrowser(t)
	parent := t.TempDir()
	hostile := `"><script>window.hit=1</script><img src=x onerror="window.hit=2"></pre></template>` + "\u202e\x1b[31m"
	dir := sample{model: "m", tasks: 1, k: 1, hostile: hostile}.write(t, filepath.Join(parent, "run"))
	h := handler(t, parent)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	p := b.tab()
	for _, path := range []string{"/", "/run/", "/run/rollout?" + firstRollout, "/run/log?" + firstRollout,
		"/run/task?name=django__django-11000", "/run/failures"} {
		p.open(s.URL + path)
		if got := p.eval(`String(window.hit) + document.querySelectorAll("img").length`); got != "undefined0" {
			t.Errorf("%s: a text was executed: %s", path, got)
		}
	}
	page := filepath.Join(t.TempDir(), "page.html")
	writePage(t, h, dir, page)
	p.open("file://" + page)
	p.eval(`document.querySelector("a.go").click()`)
	p.wait(`document.querySelectorAll("#shown details.step").length > 3`)
	if got := p.eval(`String(window.hit) + document.querySelectorAll("img").length`); got != "undefined0" {
		t.Errorf("in the page that is a file, a text was executed: %s", got)
	}

	at := filepath.Join(dir, "rollouts", "django__django-11000", "0", attempt.StepsFile)
	log, _, err := trajectory.Resume(at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range lazily + 50 {
		m := trajectory.Message{Role: "assistant", Content: fmt.Sprintf("Thought %d. %s", i, strings.Repeat("word ", 30))}
		if err := log.Append(trajectory.Event{Kind: trajectory.KindReply, Reply: &trajectory.Reply{Message: m}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	p.open(s.URL + "/run/rollout?" + firstRollout)
	if got := p.eval(`document.getElementById("s190").querySelectorAll(".body").length`); got != "0" {
		t.Errorf("a folded step has %s bodies, want 0", got)
	}
	p.eval(`document.getElementById("s190").open = true; document.getElementById("s190").scrollIntoView()`)
	p.wait(`document.getElementById("s190").querySelectorAll(".body pre").length > 0`)
	p.press("F")
	if got := p.eval(`document.getElementById("s40").querySelectorAll(".body").length`); got != "0" {
		t.Errorf("after unfolding all, a step out of sight has %s bodies, want 0", got)
	}
}

// writePage writes a run as one HTML file.
func writePage(t *testing.T, h *Handler, dir, page string) {
	t.Helper()
	f, err := os.Create(page)
	if err == nil {
		err = h.WriteFile(f, dir)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A page in a file filters its rows, shows a rollout and goes back.
func TestStaticPage(t *testing.T) {
	b := startBrowser(t)
	_, parent := site(t)
	h := handler(t, parent)
	page := filepath.Join(t.TempDir(), "page.html")
	writePage(t, h, filepath.Join(parent, "qwen-32b"), page)
	p := b.tab()
	p.open("file://" + page)
	p.eval(`(() => { const i = document.querySelector("input[data-rows]"); i.value = "sympy unsolved"; ` +
		`i.dispatchEvent(new Event("input")); })()`)
	p.wait(`[...document.querySelectorAll("tr")].filter(r => !r.hidden).length < 9`)
	p.eval(`document.querySelector("tr:not([hidden]) a.go").click()`)
	p.wait(`document.querySelector("#shown h2") && document.querySelector("#shown h2").textContent.startsWith("sympy")`)
	p.press("j", "j", "f")
	p.wait(`document.querySelectorAll("details.step")[1].open`)
	p.eval(`location.hash = ""`)
	p.wait(`document.getElementById("shown").hidden && !document.getElementById("index").hidden`)
	writePage(t, h, filepath.Join(parent, "qwen-32b", "rollouts", "django__django-11000", "0"), page)
	p.open("file://" + page)
	p.wait(`document.querySelectorAll("details.step").length > 3`)
	writePage(t, h, filepath.Join(parent, "lake"), page)
	p.open("file://" + page)
	p.wait(`document.querySelectorAll("svg").length > 3`)
	for _, said := range b.complaints {
		t.Error(said)
	}
}

// TestPictures draws the README's pictures to the directory in DEEPSWE_PICTURES: see docs/pictures/make.
func TestPictures(t *testing.T) {
	into := os.Getenv("DEEPSWE_PICTURES")
	if into == "" {
		t.Skip("DEEPSWE_PICTURES names no directory")
	}
	b := startBrowser(t)
	parent := t.TempDir()
	sample{model: "Qwen3-32B", tasks: 20, k: 4, skill: .45}.write(t, filepath.Join(parent, "verified-32b"))
	s := httptest.NewServer(handler(t, parent))
	t.Cleanup(s.Close)
	p := b.tab()
	for name, path := range map[string]string{
		"evaluation": "/verified-32b/", "rollout": "/verified-32b/rollout?" + firstRollout,
	} {
		p.open(s.URL + path)
		p.eval(`(document.querySelector("details.step.edits") || document.body).scrollIntoView()`)
		file := filepath.Join(into, name+".png")
		p.shoot(file, 1100, 720, false)
		if info, err := os.Stat(file); err != nil || info.Size() >= 200_000 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
}

// In a page in a file, a rollout of 3,000 steps is shown without its steps' texts, which are loaded when they are
// looked at.
func TestLongStaticRollout(t *testing.T) {
	testkit.SkipUnderRace(t)
	b := startBrowser(t)
	s := sample{model: "m", tasks: 2, k: 1, skill: 1, length: 3000, long: 100, source: source(t)}
	dir := s.write(t, filepath.Join(t.TempDir(), "run"))
	h, page := handler(t, dir), filepath.Join(t.TempDir(), "page.html")
	writePage(t, h, dir, page)
	p := b.tab()
	p.open("file://" + page)
	took := p.eval(`new Promise(done => {
		const begun = performance.now();
		const end = () => done(Math.round(performance.now() - begun));
		new MutationObserver(() => requestAnimationFrame(() => setTimeout(end)))
			.observe(document.getElementById("shown"), {childList: true});
		document.querySelector("a.go").click();
	})`)
	t.Logf("unfolded in %s ms", took)
	p.wait(`document.querySelectorAll("#shown details.step").length === 3000`)
	if got := p.eval(`document.querySelectorAll(".body").length`); got != "0" {
		t.Errorf("%s steps are loaded before they are unfolded, want 0", got)
	}
	p.eval(`(() => { const s = document.getElementById("s2998"); s.open = true; s.scrollIntoView(); })()`)
	p.wait(`document.querySelector("#s2998 .add")` + "?.textContent.includes('December')")
	p.eval(`document.dispatchEvent(new KeyboardEvent("keydown", {key: "f", ctrlKey: true}))`)
	p.wait(`document.querySelectorAll("#shown .body").length === 3000 && ` +
		`document.querySelector("#s17 .body").textContent !== document.querySelector("#s67 .body").textContent`)
	writePage(t, h, filepath.Join(dir, "rollouts", "django__django-11000", "0"), page)
	p.open("file://" + page + "#s2999")
	p.wait(`document.getElementById("s2999").textContent.includes("3 passed")`)
	for _, said := range b.complaints {
		t.Error(said)
	}
}
