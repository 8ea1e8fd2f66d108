module github.com/ebbtide/ebbtide/go

go 1.19
