package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"deepswe/env/disk"
	"deepswe/env/fleet"
)

// record describes an image that deepswe pulled, built or prepared. Images without a record belong to the user, and
// are never removed to make room.
type record struct {
	Ref  string    `json:"ref"`
	Used time.Time `json:"used"`
}

// records is a file that maps image IDs to records. All processes of a user share it; there is one per daemon.
type records struct{ path string }

func (d *daemon) records() records {
	facts, _ := d.known()
	if d.p.state == "" || facts.ID == "" {
		return records{}
	}
	return records{filepath.Join(d.p.state, "docker-images-"+fleet.ShortHash(facts.ID)+".json")}
}

// update changes the file under a lock and replaces it atomically, so that readers never see half of it.
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
	all, err := r.read()
	if err != nil || !change(all) {
		return err
	}
	return disk.WriteJSON(r.path, all)
}

func (r records) read() (map[string]record, error) {
	all := map[string]record{}
	if r.path == "" {
		return all, nil
	}
	if err := disk.ReadJSON(r.path, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return all, nil
}

// pulled records that deepswe may remove an image, and removes others if the budget is exceeded.
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

// used records that one of our images was used, at most once a minute.
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
		// A run that was killed, or another user's, may have made the image.
		if _, ours := all[img.id]; !ours && !derived(img.ref) {
			return false
		}
		all[img.id] = record{Ref: img.ref, Used: time.Now().UTC()}
		return true
	})
	if err != nil {
		d.p.log.Warn("recording when an image was used", "error", err)
	}
}

// pin protects an image from evict until unpin, while a container is being created from it.
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

// evict removes our images, least recently used first, until all images of the daemon fit into the budget.
func (d *daemon) evict(ctx context.Context) error {
	all, err := d.records().read()
	if err != nil {
		return err
	}
	oldestFirst := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(all[a].Used.Compare(all[b].Used), cmp.Compare(a, b))
	})
	for _, id := range oldestFirst {
		usage, err := d.cli.DiskUsage(ctx, client.DiskUsageOptions{Images: true})
		if err != nil || usage.Images.TotalSize <= d.p.options.ImageBudget {
			return err
		}
		d.mu.Lock()
		pinned := d.pins[id] > 0
		d.mu.Unlock()
		if pinned {
			continue
		}
		removed, err := d.removeImage(ctx, all[id].Ref, id)
		if err != nil {
			return err
		}
		if removed {
			d.p.log.Info("removed an image to keep to the image budget", "image", all[id].Ref, "last used", all[id].Used)
		}
	}
	return nil
}

// removeImage removes one name of an image, and the image itself with its last name, and deletes its record. It
// does not remove an image that a container uses.
func (d *daemon) removeImage(ctx context.Context, ref, id string) (removed bool, err error) {
	_, err = d.cli.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true})
	if errdefs.IsConflict(err) {
		return false, nil
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return false, fmt.Errorf("image %s: %w", ref, err)
	}
	d.dropImage(image{id: id})
	return err == nil, d.records().update(func(all map[string]record) bool {
		_, known := all[id]
		delete(all, id)
		return known
	})
}
