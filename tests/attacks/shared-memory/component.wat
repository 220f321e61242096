;; Declares a memory that threads share, which no limit would see.
(component
  (core module $m (memory 1 1 shared))
  (core instance (instantiate $m))
  (instance $training)
  (export "tunebox:method/training@0.2.0" (instance $training)))
