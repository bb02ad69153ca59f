//go:build linux

package inside

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"deepswe/env/disk"
	"deepswe/env/guest"
)

// options are the guest's command-line options.
type options struct {
	dir      string
	uid, gid int // the command user and its group
	build    string
	silence  time.Duration
	oomFile  string
	home     string
	goCache  string
	stage    int      // file descriptor of a guest.Stage
	program  []string // the program to execute after it, with its arguments
	// listen makes the guest the first process of a container that hosts connect to over bridges (see bridge.go).
	// own gives dir to the command user, prepares keeps the privileges for preparing it, and network says how to
	// close the network.
	listen        string
	own, prepares bool
	network       string
	// bridge and install select other things to do instead of serving.
	bridge, install string
	// memory limits the private writable memory of each process, and processes the number of the command user's
	// processes, if no control group does; 0 means no limit.
	memory, processes uint64
	// disk limits what commands write to diskDirs or, if there are none, to all writable mounts. diskQuota says
	// that the file system enforces a quota for the sandbox as well.
	disk      usage
	diskDirs  []string
	diskQuota bool

	environment []string // of commands, before a command's own Env
}

func parse(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet(guest.Arg, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.dir, "dir", "/", "working directory of commands")
	flags.IntVar(&o.uid, "uid", -1, "user of commands")
	flags.IntVar(&o.gid, "gid", -1, "group of commands")
	flags.StringVar(&o.build, "build", "", "the binary's identity for the greeting, or @FILE that contains it")
	flags.DurationVar(&o.silence, "silence", 0, "end when the host has sent nothing for this long")
	flags.StringVar(&o.oomFile, "oom-file", "", "the file in which the control group counts out-of-memory kills")
	flags.StringVar(&o.home, "home", "", "home directory of commands; it is created")
	flags.StringVar(&o.goCache, "go-cache", "", "serve as a Go build cache on top of this directory")
	flags.IntVar(&o.stage, "stage", 0, "make the mounts described by this file descriptor, then run PROGRAM")
	flags.Uint64Var(&o.memory, "rlimit-memory", 0, "private memory of one process, in bytes")
	flags.Uint64Var(&o.processes, "rlimit-processes", 0, "processes of the command user")
	flags.Int64Var(&o.disk.bytes, "disk-bytes", 0, "most bytes that commands may write")
	flags.Int64Var(&o.disk.files, "disk-files", 0, "most files that commands may create")
	flags.Func("disk-dir", "a directory to which the disk limits apply; may be repeated", func(dir string) error {
		o.diskDirs = append(o.diskDirs, dir)
		return nil
	})
	flags.BoolVar(&o.diskQuota, "disk-quota", false, "the file system enforces a quota for this sandbox")
	flags.StringVar(&o.listen, "listen", "", "serve hosts that connect over a bridge of this name")
	flags.StringVar(&o.bridge, "bridge", "", "pass standard input and output to the guest that listens under this name")
	flags.StringVar(&o.install, "install", "", "copy this program to this file")
	flags.StringVar(&o.network, "network", "", "close the network: delete (interfaces) or probe (check only)")
	flags.BoolVar(&o.own, "own", false, "give the working directory to the command user")
	flags.BoolVar(&o.prepares, "prepares", false, "keep the privileges for preparing the working directory")
	asOwner := flags.Bool("as-owner", false, "run commands as the owner of the working directory")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.program = flags.Args(); o.stage > 0 {
		return o, nil
	}
	err := o.complete(*asOwner)
	return o, err
}

// complete checks the options and derives what was left out.
func (o *options) complete(asOwner bool) error {
	if len(o.program) > 0 {
		return fmt.Errorf("unexpected argument %q", o.program[0])
	}
	if (o.disk.bytes > 0) != (o.disk.files > 0) {
		return errors.New("--disk-bytes and --disk-files require each other")
	}
	if !filepath.IsAbs(o.dir) {
		return fmt.Errorf("--dir %q is not absolute", o.dir)
	}
	if file, ok := strings.CutPrefix(o.build, "@"); ok {
		sum, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("--build: %w", err)
		}
		o.build = string(sum)
	}
	o.dir = filepath.Clean(o.dir)
	if asOwner {
		o.ownerOf()
	}
	if o.uid < 0 {
		o.uid = os.Getuid()
	}
	if o.gid < 0 {
		o.gid = os.Getgid()
	}
	if o.separate() && o.uid == os.Getuid() {
		return errors.New("--gid requires a --uid other than the guest's: otherwise commands could signal the guest")
	}
	o.setEnvironment()
	return nil
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
		space, _ = disk.SpaceOf("/") // if unknown, nothing is checked
	}
	return guest.Hello{
		Space: space,
		Build: o.build, UID: os.Getuid(),
		CommandUID: o.uid, CommandGID: o.gid, Dir: o.dir, Silence: o.silence,
	}
}

// separate reports whether commands run as another user than the guest.
func (o options) separate() bool { return o.uid != os.Getuid() || o.gid != os.Getgid() }

// credential makes a forked process run as the command user, without supplementary groups. Changing from user 0
// drops all capabilities as well.
func (o options) credential() *syscall.Credential {
	if !o.separate() {
		return nil
	}
	return &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
}

// baseEnvironment returns the guest's own environment. If commands run as another user, HOME, USER and LOGNAME are
// that user's, because programs fail in surprising ways if their home is not writable.
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

// lookupUser finds a user by number in a file like /etc/passwd; os/user might need C libraries.
func lookupUser(passwd string, uid int) (name, home string) {
	for line := range fileLines(passwd) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) >= 6 && f[2] == strconv.Itoa(uid) {
			return f[0], f[5]
		}
	}
	return "", ""
}
