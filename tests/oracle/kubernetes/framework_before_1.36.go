//go:build kubernetes1.34 || kubernetes1.35

package main

import (
	"context"
	"time"

	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// newCache returns an empty cache of kube-scheduler.
func newCache(ctx context.Context) internalcache.Cache {
	return internalcache.New(ctx, time.Hour, nil)
}
