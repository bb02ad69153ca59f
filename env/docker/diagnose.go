package docker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"deepswe/env"
)

var _ env.Diagnoser = (*Provider)(nil)

// Diagnose implements env.Diagnoser: one finding for each daemon.
func (p *Provider) Diagnose(context.Context) []env.Finding {
	var findings []env.Finding
	for _, d := range p.daemons {
		d.mu.Lock()
		facts, down := d.facts, d.down
		d.mu.Unlock()
		if down != nil {
			findings = append(findings, env.FindingOf("docker", down))
			continue
		}
		findings = append(findings, facts.finding())
	}
	return findings
}

func (f facts) finding() env.Finding {
	found := env.Finding{Check: "docker", Status: env.OK, Detail: fmt.Sprintf(
		"Docker %s (API %s) at %s: %s/%s, %d CPUs, %.0f GiB, %s, cgroup %s",
		f.version, f.api, f.host, f.system, f.arch, f.cpus, float64(f.memory)/(1<<30), f.storage, f.cgroup)}
	var missing []string
	for _, limit := range []struct {
		name string
		has  bool
	}{{"memory", f.memoryLimit}, {"CPU", f.cpuLimit}, {"process", f.processLimit}} {
		if !limit.has {
			missing = append(missing, limit.name)
		}
	}
	if len(missing) > 0 {
		found.Status = env.Warning
		found.Detail += "; it cannot enforce these limits: " + strings.Join(missing, ", ")
		found.Fix = "give the daemon its control groups: with systemd, Delegate=cpu cpuset io memory pids"
	}
	return found
}

// Sample implements env.Diagnoser, on the first daemon: the smallest image there that has a shell. Looking into an
// image costs a container, so only a few are tried.
func (p *Provider) Sample(ctx context.Context) (s env.Spec, lacking string, err error) {
	const most, shell = 10, "/bin/sh"
	d := p.daemons[0]
	images, err := d.sampleImages(ctx)
	if err != nil {
		return env.Spec{}, "", err
	}
	for _, ref := range images[:min(most, len(images))] {
		if has, err := d.contains(ctx, ref, shell); has || err != nil {
			return env.Spec{Image: ref}, "", err
		}
	}
	// The lease's image is empty, and comes with the installation.
	if _, err := d.install(ctx); err != nil {
		return env.Spec{}, "", err
	}
	return env.Spec{Image: leaseImage, Dir: leaseDir}, "no image with " + shell + " is on the daemon", nil
}

// sampleImages lists the images that have a name, the smallest first, without those that deepswe made for itself.
func (d *daemon) sampleImages(ctx context.Context) ([]string, error) {
	list, err := d.cli.ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, d.infrastructure(ctx, "list images", err)
	}
	size := map[string]int64{}
	var refs []string
	for _, found := range list.Items {
		for _, tag := range found.RepoTags {
			if tag != leaseImage && !derived(tag) && tag != "<none>:<none>" {
				size[tag] = found.Size
				refs = append(refs, tag)
				break
			}
		}
	}
	slices.SortFunc(refs, func(a, b string) int { return cmp.Or(cmp.Compare(size[a], size[b]), cmp.Compare(a, b)) })
	return refs, nil
}
