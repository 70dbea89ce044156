package fsnode

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// listing is a store in which something happens between a reading of the list
// and its coming to the one who asked.
type listing struct {
	*store.Store
	between func()
}

func (l *listing) ListSessions(ctx context.Context, q store.ListQuery) ([]store.Row, error) {
	rows, err := l.Store.ListSessions(ctx, q)
	if l.between != nil {
		l.between()
	}
	return rows, err
}

// TestRemovalDuringTheFirstList: a session that went while the first list was on
// its way is not listed.
func TestRemovalDuringTheFirstList(t *testing.T) {
	l := &listing{}
	b := newBench(t, func(st *store.Store) Store { l.Store = st; return l })
	b.chat("s1")
	b.chat("s2")
	b.tree.mu.Lock()
	clear(b.tree.rows) // as before the first list
	clear(b.tree.ids)
	b.tree.mu.Unlock()
	told := make(chan struct{})
	l.between = func() {
		go func() {
			defer close(told)
			if err := l.DeleteSession(context.Background(), "s1"); err != nil { // tells the tree
				t.Error(err)
			}
		}()
		select {
		case <-told:
		case <-time.After(200 * time.Millisecond): // the telling may wait for the list
		}
	}
	if err := b.tree.loadRows(context.Background()); err != nil {
		t.Fatal(err)
	}
	<-told
	if got := b.list("sessions"); !slices.Equal(got, []string{"s2"}) {
		t.Errorf("listed: %q", got)
	}
}
