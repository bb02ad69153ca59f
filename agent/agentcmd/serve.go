package agentcmd

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"deepswe/agent/cli"
	"deepswe/agent/run"
	"deepswe/env/disk"
)

// freeAddress is where --serve listens without an address.
const freeAddress = "127.0.0.1:0"

// serveRuns serves the pages of runs until the context ends. That is not an error.
func serveRuns(ctx context.Context, d Deps, address string, args []string) error {
	// The address is optional, and cobra takes the word after --serve for a path.
	if len(args) > 0 && address == freeAddress && isAddress(args[0]) {
		address, args = args[0], args[1:]
	}
	paths := []string{d.RunsDir()}
	if len(args) > 0 {
		paths = nil
	}
	for _, arg := range args {
		path, err := runAt(d, arg)
		if err != nil {
			return err
		}
		paths = append(paths, path)
	}
	h, err := pagesOf(d, paths...)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return cli.Usagef("invalid --serve %q: want HOST:PORT, as in 127.0.0.1:8080", address)
	}
	g := &gate{pages: h, host: host, session: rand.Text(), token: rand.Text()}
	at, stop, err := cli.Serve(address, g)
	if err != nil {
		return cli.Usage(err)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		fmt.Fprintf(d.Err, "warning: %s is reached from other machines, without encryption\n", at)
	}
	g.mu.Lock()
	g.say = func(token string) { fmt.Fprintf(d.Err, "http://%s/?token=%s\n", at, token) }
	g.say(g.token)
	g.mu.Unlock()
	openBrowser(d, fmt.Sprintf("http://%s/?token=%s", at, g.token))
	<-ctx.Done()
	return stop()
}

// pathOf returns the path that an argument names: a file, a directory, or the id of a run.
func pathOf(d Deps, arg string) (string, error) {
	if _, err := os.Stat(arg); errors.Is(err, fs.ErrNotExist) || arg == lastRun {
		return findRun(d, arg, "")
	}
	return arg, nil
}

// runAt is pathOf, but refuses the directory of another program.
func runAt(d Deps, arg string) (string, error) {
	path, err := pathOf(d, arg)
	if err != nil {
		return "", err
	}
	if _, err = run.ReadManifest(path); errors.Is(err, run.ErrOther) {
		return "", cli.Usage(err)
	}
	return path, nil
}

func pagesOf(d Deps, paths ...string) (Pages, error) {
	config, err := d.LoadConfig()
	if err != nil {
		return nil, err
	}
	return d.Pages(config.Prices, paths...)
}

// writeHTML writes the page of a run, or of an attempt, to a file.
func writeHTML(d Deps, file, arg string) error {
	path, err := runAt(d, arg)
	if err != nil {
		return err
	}
	p, err := pagesOf(d, path)
	if err != nil {
		return err
	}
	return cli.Usage(disk.WriteStream(file, func(w io.Writer) error { return p.WriteFile(w, path) }))
}

// unpackRuns replaces archives among the arguments by directories.
func unpackRuns(args []string, open *opened) ([]string, error) {
	var paths []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if name, archive := strings.CutSuffix(filepath.Base(arg), run.ArchiveEnding); archive && err == nil && !info.IsDir() {
			scratch, err := open.makeScratch("view")
			if err != nil {
				return nil, err
			}
			to := filepath.Join(scratch, name)
			if err := unpackRun(arg, to); err != nil {
				return nil, cli.Usagef("%s: %w", arg, err)
			}
			arg = to
		}
		paths = append(paths, arg)
	}
	return paths, nil
}

func unpackRun(archive, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	return run.Unpack(f, to)
}

// isAddress reports whether a word is HOST:PORT and nothing that is on the disk.
func isAddress(word string) bool {
	_, port, err := net.SplitHostPort(word)
	if err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
		return false
	}
	_, err = os.Stat(word)
	return err != nil
}

func openBrowser(d Deps, address string) {
	program := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		program = "open"
	case d.Getenv("DISPLAY") == "" && d.Getenv("WAYLAND_DISPLAY") == "":
		return
	}
	// The program may be the browser itself, which outlives this process. The address is printed, too.
	if c := exec.Command(program, address); c.Start() == nil {
		_ = c.Process.Release() // cannot fail
	}
}

// gate admits the browser that knows the token. A token in an address is good for one browser, because addresses are
// kept in histories: it is exchanged for a cookie, and a new token is printed for the next browser.
type gate struct {
	pages   http.Handler
	host    string // of the address on which the server listens
	session string // the cookie of browsers that were admitted

	mu    sync.Mutex
	token string
	say   func(token string)
}

// cookieName returns the cookie's name. It contains the port, because browsers send a host's cookies to all its
// ports.
func cookieName(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host) // empty for HTTP's default port
	return "deepswe-" + port
}

// ServeHTTP serves a page to an admitted browser.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.ours(r.Host) {
		http.Error(w, "this address is not served here", http.StatusMisdirectedRequest)
		return
	}
	q := r.URL.Query()
	if token := q.Get("token"); token != "" && g.redeem(token) {
		q.Del("token")
		http.SetCookie(w, &http.Cookie{
			Name: cookieName(r), Value: g.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		u := *r.URL
		u.RawQuery = q.Encode()
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, u.RequestURI(), http.StatusSeeOther)
		return
	}
	if c, err := r.Cookie(cookieName(r)); err != nil || !same(c.Value, g.session) {
		http.Error(w, "open the address that deepswe view --serve printed last: each admits one browser",
			http.StatusForbidden)
		return
	}
	g.pages.ServeHTTP(w, r)
}

// redeem reports whether the token is the current one, which it then replaces.
func (g *gate) redeem(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !same(token, g.token) {
		return false
	}
	g.token = rand.Text()
	g.say(g.token)
	return true
}

// same compares secrets in constant time.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// ours reports whether a Host header is an address of this server. Another site's name that resolves to it is
// rejected, because that site's scripts could read the pages.
func (g *gate) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	_, err := netip.ParseAddr(strings.Trim(name, "[]"))
	return err == nil || name == "localhost" || name == g.host && name != ""
}
