//go:build linux

package inside

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deepswe/env/disk"
	"deepswe/env/guest"
)

// options are what the guest is started with.
type options struct {
	dir      string
	uid, gid int // of commands
	build    string
	silence  time.Duration
	oomFile  string
	home     string
	goCache  string
	stage    int      // descriptor of a guest.Stage
	program  []string // what comes after it
	// listen makes the guest the first process of a container that hosts come to over bridges, see bridge.go. own gives
	// dir to the command user, prepares keeps the rights to prepare it, and network says how the network is closed.
	listen        string
	own, prepares bool
	network       string
	// bridge and install are other things that the program does instead of serving.
	bridge, install string
	// memory bounds the private writable memory of a single process and processes the command user's processes, where
	// no control group does; 0 is no bound.
	memory, processes uint64
	// disk bounds what commands write: to diskDirs, or, where none are named, to whatever is mounted writable. diskQuota
	// says that the file system has a quota for the sandbox, too.
	disk      usage
	diskDirs  []string
	diskQuota bool

	environment []string // of commands, before their own additions
}

func parse(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet(guest.Arg, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.dir, "dir", "/", "working directory of commands")
	flags.IntVar(&o.uid, "uid", -1, "user of commands")
	flags.IntVar(&o.gid, "gid", -1, "group of commands")
	flags.StringVar(&o.build, "build", "", "what the greeting says the binary is, or @FILE that says it")
	flags.DurationVar(&o.silence, "silence", 0, "end when the host says nothing for this long")
	flags.StringVar(&o.oomFile, "oom-file", "", "where the control group counts out-of-memory kills")
	flags.StringVar(&o.home, "home", "", "home of commands, which is made")
	flags.StringVar(&o.goCache, "go-cache", "", "be a build cache for the go command, on top of this one")
	flags.IntVar(&o.stage, "stage", 0, "mount what this descriptor says, and become the program that follows")
	flags.Uint64Var(&o.memory, "rlimit-memory", 0, "private memory of one process, in bytes")
	flags.Uint64Var(&o.processes, "rlimit-processes", 0, "processes of the command user")
	flags.Int64Var(&o.disk.bytes, "disk-bytes", 0, "what commands may write, in bytes")
	flags.Int64Var(&o.disk.files, "disk-files", 0, "how many files commands may make")
	flags.Func("disk-dir", "a directory that counts; may be repeated", func(dir string) error {
		o.diskDirs = append(o.diskDirs, dir)
		return nil
	})
	flags.BoolVar(&o.diskQuota, "disk-quota", false, "the file system has a quota for this sandbox")
	flags.StringVar(&o.listen, "listen", "", "serve whoever comes over a bridge of this name")
	flags.StringVar(&o.bridge, "bridge", "", "hand standard input and output to the guest that listens under this name")
	flags.StringVar(&o.install, "install", "", "copy this program to this file")
	flags.StringVar(&o.network, "network", "", "close the network first: delete (its interfaces) or probe (that it is)")
	flags.BoolVar(&o.own, "own", false, "give the working directory to the command user")
	flags.BoolVar(&o.prepares, "prepares", false, "keep the rights to prepare the working directory")
	asOwner := flags.Bool("as-owner", false, "run commands as the owner of the working directory")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.program = flags.Args(); o.stage > 0 {
		return o, nil
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if (o.disk.bytes > 0) != (o.disk.files > 0) {
		return o, errors.New("--disk-bytes and --disk-files come together")
	}
	if !filepath.IsAbs(o.dir) {
		return o, fmt.Errorf("--dir %q is not absolute", o.dir)
	}
	if file, ok := strings.CutPrefix(o.build, "@"); ok {
		sum, err := os.ReadFile(file)
		if err != nil {
			return o, fmt.Errorf("--build: %w", err)
		}
		o.build = string(sum)
	}
	o.dir = filepath.Clean(o.dir)
	if *asOwner {
		o.ownerOf()
	}
	if o.uid < 0 {
		o.uid = os.Getuid()
	}
	if o.gid < 0 {
		o.gid = os.Getgid()
	}
	if o.separate() && o.uid == os.Getuid() {
		return o, errors.New("--gid without another --uid: commands would run as a user that can signal the guest")
	}
	o.setEnvironment()
	return o, nil
}

func (o *options) setEnvironment() {
	o.environment = o.baseEnvironment()
	if o.home != "" {
		o.environment = guest.Overlay(o.environment, []string{"HOME=" + o.home})
	}
}

func (o options) hello() guest.Hello {
	space, err := disk.SpaceOf(o.dir)
	if err != nil {
		space, _ = disk.SpaceOf("/") // unknown: nothing is checked
	}
	return guest.Hello{
		Space: space,
		Build: o.build, PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(),
		CommandUID: o.uid, CommandGID: o.gid, Dir: o.dir, Arch: runtime.GOARCH, Silence: o.silence,
	}
}

// separate reports whether commands run as another user than the guest.
func (o options) separate() bool { return o.uid != os.Getuid() || o.gid != os.Getgid() }

// credential makes a forked process the command user, without supplementary groups. Giving up user 0 gives up every
// capability with it.
func (o options) credential() *syscall.Credential {
	if !o.separate() {
		return nil
	}
	return &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
}

// baseEnvironment is the guest's own environment. Where commands run as another user, HOME, USER and LOGNAME are that
// user's: programs whose home is not writable fail in surprising ways.
func (o options) baseEnvironment() []string {
	env := os.Environ()
	if !o.separate() {
		return env
	}
	name, home := lookupUser("/etc/passwd", o.uid)
	if info, err := os.Stat(home); err != nil || !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != o.uid {
		home = os.TempDir()
	}
	own := []string{"HOME=" + home}
	if name != "" {
		own = append(own, "USER="+name, "LOGNAME="+name)
	}
	return guest.Overlay(env, own)
}

// lookupUser finds a user by number, without the libraries that package os/user may need.
func lookupUser(passwd string, uid int) (name, home string) {
	data, err := os.ReadFile(passwd)
	if err != nil {
		return "", ""
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) >= 6 && f[2] == strconv.Itoa(uid) {
			return f[0], f[5]
		}
	}
	return "", ""
}
