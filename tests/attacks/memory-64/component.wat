;; Declares a memory of 64-bit addresses.
(component
  (core module $m (memory i64 1))
  (core instance (instantiate $m))
  (instance $training)
  (export "tunebox:method/training@0.2.0" (instance $training)))
