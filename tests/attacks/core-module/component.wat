;; Is no component at all.
(module)
