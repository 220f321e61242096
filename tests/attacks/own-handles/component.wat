;; Brings a kind of handle of its own, with which it could fill the host's tables.
(component
  (type $mine (resource (rep i32)))
  (core func $new (canon resource.new $mine)))
