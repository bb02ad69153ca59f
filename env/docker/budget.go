package docker

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"deepswe/env/disk"
)

// record is what is remembered of an image that we pulled, built or prepared. Images without a record belong to
// others, and are never removed.
type record struct {
	Ref  string    `json:"ref"`
	Used time.Time `json:"used"`
}

// records is a file that all processes of a user share, one for each daemon: image ID to record.
type records struct{ path string }

func (d *daemon) records() records {
	facts, _ := d.known()
	if d.p.state == "" || facts.id == "" {
		return records{}
	}
	return records{filepath.Join(d.p.state, "docker-images-"+shortHash(facts.id)+".json")}
}

// update changes the file under a lock. The file is replaced as a whole, so that a reader never sees half of it.
func (r records) update(change func(map[string]record) (changed bool)) error {
	if r.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o755); err != nil {
		return err
	}
	lock, err := disk.WaitLock(r.path + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	all := map[string]record{}
	if err := disk.ReadJSON(r.path, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !change(all) {
		return nil
	}
	return disk.WriteJSON(r.path, all)
}

// pulled remembers that an image is ours to remove, and makes room if it was one too many.
func (d *daemon) pulled(ctx context.Context, img image) {
	err := d.records().update(func(all map[string]record) bool {
		all[img.id] = record{Ref: img.ref, Used: time.Now().UTC()}
		return true
	})
	if err == nil && d.p.options.ImageBudget > 0 {
		d.pin(img)
		err = d.evict(ctx)
		d.unpin(img)
	}
	if err != nil && ctx.Err() == nil {
		d.p.log.Warn("keeping to the image budget", "host", d.host, "error", err)
	}
}

// used writes down that an image of ours was used, once a minute at most.
func (d *daemon) used(img image) {
	d.mu.Lock()
	fresh := time.Since(d.touched[img.id]) < time.Minute
	if !fresh {
		d.touched[img.id] = time.Now()
	}
	d.mu.Unlock()
	if fresh {
		return
	}
	err := d.records().update(func(all map[string]record) bool {
		r, ours := all[img.id]
		if ours {
			r.Used = time.Now().UTC()
			all[img.id] = r
		}
		return ours
	})
	if err != nil {
		d.p.log.Warn("writing down when an image was used", "error", err)
	}
}

// pin keeps an image while a container is being made of it.
func (d *daemon) pin(img image) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pins[img.id]++
}

func (d *daemon) unpin(img image) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pins[img.id]--; d.pins[img.id] <= 0 {
		delete(d.pins, img.id)
	}
}

// evict removes our images, the least recently used first, until all images of the daemon fit into the budget or none
// that may go is left. One that a container uses is refused by the daemon, and stays.
func (d *daemon) evict(ctx context.Context) error {
	var candidates []string
	var all map[string]record
	err := d.records().update(func(now map[string]record) bool {
		all = now
		return false
	})
	if err != nil {
		return err
	}
	for id := range all {
		candidates = append(candidates, id)
	}
	slices.SortFunc(candidates, func(a, b string) int {
		return cmp.Or(all[a].Used.Compare(all[b].Used), cmp.Compare(a, b))
	})
	for _, id := range candidates {
		usage, err := d.cli.DiskUsage(ctx, client.DiskUsageOptions{Images: true})
		if err != nil {
			return err
		}
		if usage.Images.TotalSize <= d.p.options.ImageBudget {
			return nil
		}
		if err := d.evictOne(ctx, id, all[id]); err != nil {
			return err
		}
	}
	return nil
}

func (d *daemon) evictOne(ctx context.Context, id string, r record) error {
	d.mu.Lock()
	pinned := d.pins[id] > 0
	d.mu.Unlock()
	if pinned {
		return nil
	}
	_, err := d.cli.ImageRemove(ctx, r.Ref, client.ImageRemoveOptions{PruneChildren: true})
	if errdefs.IsConflict(err) {
		return nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	d.dropImage(image{id: id})
	d.p.log.Info("removed an image to keep to the image budget", "image", r.Ref, "last used", r.Used)
	return d.records().update(func(now map[string]record) bool {
		delete(now, id)
		return true
	})
}
