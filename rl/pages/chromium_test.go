package pages

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"deepswe/env/testkit"
)

// browser is a headless Chromium that is driven through its DevTools protocol.
type browser struct {
	t    testing.TB
	conn *websocket.Conn
	last int
	// complaints are script errors and violations of a page's security policy.
	complaints []string
}

// startBrowser starts Debian's Chromium, or skips the test if it is not installed.
func startBrowser(t testing.TB) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		testkit.Skip(t, "chromium", err)
	}
	profile, err := os.MkdirTemp("", "chromium")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(profile) }) // its children may still write there for a moment
	c := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--user-data-dir="+profile, "--remote-debugging-port=0", "about:blank")
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		testkit.Skip(t, "chromium", err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait() // its error says only that it was killed
	})
	address := ""
	for s := bufio.NewScanner(stderr); address == "" && s.Scan(); {
		_, address, _ = strings.Cut(s.Text(), "DevTools listening on ")
	}
	conn, _, err := websocket.Dial(t.Context(), address, nil) //nolint:bodyclose // the connection owns it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(64 << 20)
	return &browser{t: t, conn: conn}
}

// tab opens an empty page.
func (b *browser) tab() *tab {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	p := &tab{b, session.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		p.call(domain+".enable", nil)
	}
	return p
}

// call calls a method of the protocol, and waits for its result.
func (b *browser) call(session, method string, params, result any) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b.last++
	m := map[string]any{"id": b.last, "method": method}
	if session != "" {
		m["sessionId"] = session
	}
	if params != nil {
		m["params"] = params
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = b.conn.Write(ctx, websocket.MessageText, text)
	}
	for err == nil {
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		_, text, err = b.conn.Read(ctx)
		if err != nil || json.Unmarshal(text, &answer) != nil || answer.ID != b.last {
			b.hear(text)
			continue // an event
		}
		if answer.Error != nil {
			b.t.Fatalf("%s: %s", method, answer.Error.Message)
		}
		if result != nil {
			err = json.Unmarshal(answer.Result, result)
		}
		break
	}
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
}

// hear records the complaint in an event, if there is one.
func (b *browser) hear(event []byte) {
	var e struct {
		Method string
		Params struct {
			Entry            struct{ Level, Text, URL string }
			ExceptionDetails json.RawMessage
		}
	}
	if json.Unmarshal(event, &e) != nil {
		return
	}
	switch {
	case e.Method == "Runtime.exceptionThrown":
		b.complaints = append(b.complaints, string(e.Params.ExceptionDetails))
	case e.Method == "Log.entryAdded" && e.Params.Entry.Level == "error" &&
		!strings.HasSuffix(e.Params.Entry.URL, "favicon.ico"):
		b.complaints = append(b.complaints, e.Params.Entry.URL+": "+e.Params.Entry.Text)
	}
}

// tab is a page of the browser.
type tab struct {
	b       *browser
	session string
}

func (p *tab) call(method string, params map[string]any) { p.b.call(p.session, method, params, nil) }

// open opens an address, and waits for the page to load.
func (p *tab) open(url string) {
	p.b.t.Helper()
	p.call("Page.navigate", map[string]any{"url": url})
	page, _, _ := strings.Cut(url, "#")
	p.wait(fmt.Sprintf(`location.href.startsWith(%q)`, page))
}

// eval evaluates an expression in the page, and returns its value as text.
func (p *tab) eval(expression string) string {
	p.b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	p.b.call(p.session, "Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}, &r)
	if r.ExceptionDetails != nil {
		p.b.t.Fatalf("%s: %s", expression, r.ExceptionDetails.Exception.Description)
	}
	return fmt.Sprint(r.Result.Value)
}

// wait waits until the page has been loaded and an expression is true.
func (p *tab) wait(expression string) {
	p.b.t.Helper()
	loaded := `document.readyState === "complete" && (` + expression + `)`
	for range 600 {
		var r struct{ Result struct{ Value any } }
		// A page that is being left has no values yet.
		p.b.call(p.session, "Runtime.evaluate", map[string]any{"expression": loaded, "returnByValue": true}, &r)
		if r.Result.Value == true {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.b.t.Fatalf("in the page %s, this did not become true: %s", p.eval("location.href"), expression)
}

// press presses keys, one after another.
func (p *tab) press(keys ...string) {
	p.b.t.Helper()
	for _, key := range keys {
		text, code := key, 0
		switch key {
		case "Enter":
			text, code = "\r", 13
		case "Escape":
			text, code = "", 27
		}
		p.call("Input.dispatchKeyEvent", map[string]any{
			"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code,
		})
		p.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key})
	}
}

// drag moves the mouse over an element with the button down, from one fraction of its width to another.
func (p *tab) drag(element string, from, to float64) {
	p.b.t.Helper()
	p.eval(element + `.scrollIntoView({block: "center"})`)
	at := func(share float64) map[string]any {
		var x, y float64
		place := fmt.Sprintf(`(() => { const b = %s.getBoundingClientRect(); `+
			`return (b.left + b.width * %g) + " " + (b.top + b.height / 2); })()`, element, share)
		if _, err := fmt.Sscan(p.eval(place), &x, &y); err != nil {
			p.b.t.Fatal(err)
		}
		return map[string]any{"x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1}
	}
	for _, e := range []struct {
		kind  string
		share float64
	}{{"mousePressed", from}, {"mouseMoved", to}, {"mouseReleased", to}} {
		params := at(e.share)
		params["type"] = e.kind
		p.call("Input.dispatchMouseEvent", params)
	}
}

// shoot writes a screenshot of a page, at most height pixels high.
func (p *tab) shoot(path string, width, height int, dark bool) {
	p.b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	})
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	})
	var shot struct{ Data string }
	p.b.call(p.session, "Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		p.b.t.Fatal(err)
	}
}
