package envcmd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"deepswe/env"
)

// How much free disk is enough: task images take gigabytes each.
const (
	diskEnough = 20 << 30
	diskLittle = 2 << 30
)

// checkDisk looks at the file systems that results and temporary files go to.
func checkDisk() []env.Finding {
	where := []string{"."}
	if temp := os.TempDir(); !sameDisk(temp, ".") {
		where = append(where, temp)
	}
	var findings []env.Finding
	for _, path := range where {
		name := path
		if path == "." {
			name = "the current directory"
		}
		f := env.Finding{Check: "disk", Status: env.OK}
		var disk syscall.Statfs_t
		if err := syscall.Statfs(path, &disk); err != nil {
			f.Status, f.Detail = env.Failed, fmt.Sprintf("%s: %v", name, err)
			findings = append(findings, f)
			continue
		}
		free := int64(disk.Bavail) * int64(disk.Bsize)
		f.Detail = fmt.Sprintf("%.1f GiB free for %s", float64(free)/(1<<30), name)
		if free < diskEnough {
			f.Status, f.Detail = env.Warning, f.Detail+"; images of tasks take gigabytes each"
			f.Fix = "docker system prune"
		}
		if free < diskLittle {
			f.Status = env.Failed
		}
		findings = append(findings, f)
	}
	return findings
}

func sameDisk(a, b string) bool {
	var x, y syscall.Stat_t
	return syscall.Stat(a, &x) == nil && syscall.Stat(b, &y) == nil && x.Dev == y.Dev
}

// checkGit looks for the git command, which snapshots and patches of local repositories need.
func checkGit(ctx context.Context) []env.Finding {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "--version").Output()
	if err != nil {
		return []env.Finding{{Check: "git", Status: env.Failed, Detail: err.Error(), Fix: "apt-get install git"}}
	}
	return []env.Finding{{Check: "git", Status: env.OK, Detail: strings.TrimSpace(string(out))}}
}
