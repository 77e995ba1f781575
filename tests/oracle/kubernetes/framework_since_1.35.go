//go:build !kubernetes1.34

package main

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
)

// Types that are in another package before 1.35.
type (
	deviceClassLister    = fwk.DeviceClassLister
	filterPlugin         = fwk.FilterPlugin
	pluginHandle         = fwk.Handle
	plugin               = fwk.Plugin
	preFilterPlugin      = fwk.PreFilterPlugin
	preFilterResult      = fwk.PreFilterResult
	resourceClaimTracker = fwk.ResourceClaimTracker
)

// watchDeviceClasses lets the manager of claims learn of device classes from events.
func watchDeviceClasses(manager *dynamicresources.DefaultDRAManager, factory *staticInformers) {
	if !extendedResources() {
		return
	}
	if resolver, ok := manager.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache); ok {
		_, _ = factory.byKind["DeviceClass"].AddEventHandler(cache.ResourceEventHandler(resolver))
	}
}
