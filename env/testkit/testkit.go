package testkit

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Updating reports whether the tests were run with -update, for tests that keep expected text inside a larger file.
func Updating() bool { return *update }

// Golden compares got with the file at path, after writing it there if the tests were run with -update.
func Golden[T ~string | ~[]byte](t testing.TB, path string, got T) {
	t.Helper()
	if *update {
		WriteFile(t, path, string(got))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (-update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), -update rewrites it:\n%s", path, diff)
	}
}

// WriteFile writes a file, with the directories above it, and returns its path.
func WriteFile(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Eventually waits for a condition that must come true. How long that takes does not matter: the limit is for tests
// that fail.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a minute it does not hold that %s", what)
		}
	}
}

// Required reports whether the comma-separated list DEEPSWE_TEST_REQUIRE contains what.
func Required(what string) bool {
	return slices.Contains(strings.Split(os.Getenv("DEEPSWE_TEST_REQUIRE"), ","), what)
}

// Skip skips a test that needs what, and gives the reason. If what is [Required], the test fails instead.
func Skip(t testing.TB, what string, why any) {
	t.Helper()
	if Required(what) {
		t.Fatalf("%v (DEEPSWE_TEST_REQUIRE contains %s)", why, what)
	}
	t.Skipf("needs %s: %v", what, why)
}

// SkipUnderRace skips a test that computes for long, which the race detector makes many times as slow, and whose few
// goroutines other tests run, too. CI also runs all tests without the race detector.
func SkipUnderRace(t testing.TB) {
	t.Helper()
	if UnderRace {
		t.Skip("takes minutes under the race detector")
	}
}

// Images skips a test unless Docker is available and has these images, which .ci/run builds.
func Images(t testing.TB, images ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		Skip(t, "docker", fmt.Sprintf("%v: %s", err, out))
	}
	for _, image := range images {
		if out, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", image).CombinedOutput(); err != nil {
			Skip(t, "docker", fmt.Sprintf("image %s, built by .ci/run: %s", image, out))
		}
	}
}

// Main runs the tests of a package that uses Scratch, Build or Guest. It checks for leaked goroutines and removes the
// scratch directory at the end. Goroutines with one of the functions in known on their stack are not leaks.
func Main(m *testing.M, known ...string) {
	options := []goleak.Option{goleak.Cleanup(func(code int) {
		if dir, err := scratch(); err == nil {
			os.RemoveAll(dir)
		}
		os.Exit(code)
	})}
	for _, function := range known {
		options = append(options, goleak.IgnoreAnyFunction(function))
	}
	goleak.VerifyTestMain(m, options...)
}

// Parallel runs up to n tests at once, unless -parallel is given, in packages whose tests mostly wait. Call it in
// TestMain.
func Parallel(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

var scratch = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "deepswe-test-") })

// Scratch returns a directory that all tests of the package share and that Main removes.
func Scratch(t testing.TB) string {
	t.Helper()
	dir, err := scratch()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Guest returns the path of a static executable that serves as the guest in containers; it is built once per test
// run, because a test binary is not static under the race detector. DEEPSWE_TEST_GUEST names an existing one, for
// processes that tests start.
func Guest(t testing.TB) string {
	t.Helper()
	path, err := guest()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var guest = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("DEEPSWE_TEST_GUEST"); path != "" {
		return path, nil
	}
	return Build("deepswe/env/docker/testdata/guest")
})

// Build builds a program of this module as a static executable in the scratch directory, without what only debuggers
// read, and returns its path.
func Build(program string) (string, error) {
	dir, err := scratch()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(program))
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return path, nil
}

// FreePort returns a port of the loopback interface on which nothing listens at the moment.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
