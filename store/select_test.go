package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sessionfs/sessionfs/store"
)

func TestSelectRows(t *testing.T) {
	rows := []store.Row{
		{ID: "c", Title: "Kyoto", Project: "p", Status: "idle", CreatedAt: 1, UpdatedAt: 9},
		{ID: "a", Title: "build", Status: "failed", CreatedAt: 3, UpdatedAt: 9},
		{ID: "b", Title: "kyoto again", Status: "done", CreatedAt: 2, UpdatedAt: 7},
	}
	for _, tt := range []struct {
		name string
		f    store.RowFilter
		want string
	}{
		{"as it is", store.RowFilter{}, "cab"},
		{"updated keeps equal ones", store.RowFilter{Sort: "updated"}, "cab"},
		{"created", store.RowFilter{Sort: "created"}, "abc"},
		{"title", store.RowFilter{Sort: "title"}, "acb"},
		{"id reversed", store.RowFilter{Sort: "id", Reverse: true}, "cba"},
		{"status", store.RowFilter{Sort: "status"}, "bac"},
		{"title contains", store.RowFilter{Title: "KYOTO"}, "cb"},
		{"project", store.RowFilter{Project: "p"}, "c"},
		{"limit after order", store.RowFilter{Sort: "id", Limit: 2}, "ab"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			for _, r := range store.SelectRows(rows, tt.f) {
				got += r.ID
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
