module github.com/ebbtide/ebbtide/go/bench

go 1.19

require (
	github.com/bits-and-blooms/bloom/v3 v3.3.1
	github.com/ebbtide/ebbtide/go v0.0.0
)

replace github.com/ebbtide/ebbtide/go => ../
