package dag

import (
	"strconv"
	"testing"
)

var benchSizes = []int{1_000, 10_000}

func BenchmarkNewIndex(b *testing.B) {
	for _, size := range benchSizes {
		nodes := linear(size)
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewIndex(nodes)
			}
		})
	}
}

// BenchmarkAppend appends one node to an index of the size; time and memory an
// operation must not depend on it.
func BenchmarkAppend(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			ix := NewIndex(linear(size))
			b.ReportAllocs()
			for i := size; b.Loop(); i++ {
				ix = ix.Append(Node{ID: nodeID(i), Seq: int64(i), Role: roleUser, Predecessor: nodeID(i - 1)})
			}
		})
	}
}

func BenchmarkBranch(b *testing.B) {
	for _, size := range benchSizes {
		ix := NewIndex(linear(size))
		head := nodeID(size - 1)
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if branch, err := ix.Branch(head); err != nil || len(branch) != size {
					b.Fatal(len(branch), err)
				}
			}
		})
	}
}

func BenchmarkTips(b *testing.B) {
	for _, size := range benchSizes {
		ix := NewIndex(linear(size))
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ix.Tips(nil)
			}
		})
	}
}
